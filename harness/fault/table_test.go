package fault

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
)

// paper is a world in which faults are made and not injected.
type paper struct{ World }

func (paper) Machine(name string) (*node.Machine, error) {
	if !strings.HasPrefix(name, "node0") {
		return nil, fmt.Errorf("there is no node %q", name)
	}
	return nil, nil
}

func (paper) Nodes() []string    { return []string{"node01", "node02", "node03", "node04"} }
func (paper) SubnetFile() string { return "/run/flannel/subnet.env" }
func (paper) StateDir() string   { return "/var/lib/nemesh" }
func (paper) EtcdPrefix() string { return "/coreos.com/network" }

func (paper) Etcd() *etcd.Member { return etcd.New(etcd.Options{Machine: &node.Machine{}}) }

// onPaper makes the fault of a row.
func onPaper(t *testing.T, e Entry) Fault {
	t.Helper()
	params := map[string]string{}
	if e.ID == "uplink-readdressed" {
		params["address"] = "192.168.200.77/24"
	}
	f, err := e.New(paper{}, "node02", params)
	if err != nil {
		t.Fatalf("%s: %v", e.ID, err)
	}
	return f
}

func TestRowsAreWholeAndTheirFaultsSayTheSame(t *testing.T) {
	ids, names := map[string]bool{}, map[string]bool{}
	for _, e := range ours().all() {
		if !kebab.MatchString(e.ID) || ids[e.ID] {
			t.Errorf("the id %q is taken or not in kebab case", e.ID)
		}
		ids[e.ID] = true
		if e.About == "" || e.Component == "" || e.Promise == "" {
			t.Errorf("%s: %q, component %q, promise %q", e.ID, e.About, e.Component, e.Promise)
		}
		f := onPaper(t, e)
		if name := f.Name(); name == "" || names[name] || strings.Contains(name, "  ") {
			t.Errorf("%s: the name %q is empty, taken or incomplete", e.ID, name)
		}
		names[f.Name()] = true
		i := Identify(f)
		if i.ID != e.ID || i.Component != e.Component || i.Promise != e.Promise {
			t.Errorf("%s says that it is %+v", e.ID, i)
		}
		if e.Component != ComponentEtcd && len(i.Nodes) == 0 || slices.Contains(i.Nodes, "") ||
			strings.Contains(f.Name(), "node02") && !slices.Contains(i.Nodes, "node02") {
			t.Errorf("%s is called %q and is on %q", e.ID, f.Name(), i.Nodes)
		}
		for param, value := range e.Params {
			if value != "" && i.Params[param] != value {
				t.Errorf("%s was made with %s=%s and has %q", e.ID, param, value, i.Params)
			}
		}
	}
}

func TestRowsTakeWhatTheyHave(t *testing.T) {
	for _, e := range ours().all() {
		if _, err := e.New(paper{}, "node01", map[string]string{"colour": "red"}); err == nil {
			t.Errorf("%s takes a parameter that it does not have", e.ID)
		}
		if _, err := e.New(paper{}, "nobody", nil); err == nil {
			t.Errorf("%s is made on a node that is not there", e.ID)
		}
		for param := range e.Params {
			_, err := e.New(paper{}, "node01", map[string]string{param: "\x00"})
			free := slices.Contains([]string{"key", "value", "path", "flags", "config"}, param)
			if free != (err == nil) {
				t.Errorf("%s with nonsense for %s: %v", e.ID, param, err)
			}
		}
	}
}

// noKind are the faults that are of no kind by themselves: what they do is said where they are made.
var noKind = []string{"Done", "Several"}

// TestEveryFaultHasARow looks for the types with an Inject in the package's source, so that a fault which
// nobody has put into the table is missed.
func TestEveryFaultHasARow(t *testing.T) {
	made := map[string]bool{}
	var note func(f Fault)
	note = func(f Fault) {
		made[reflect.TypeOf(f).Name()] = true
		if s, ok := f.(Several); ok {
			for _, g := range s.Faults {
				note(g)
				if _, ok := Find(g.Identity().ID); !ok {
					t.Errorf("%s is part of %s and has no row", g.Name(), s.Name())
				}
			}
		}
	}
	for _, e := range ours().all() {
		note(onPaper(t, e))
	}
	types, ids := inSource(t)
	for _, id := range ids {
		if _, ok := Find(id); !ok {
			t.Errorf("the id %q is used and has no row", id)
		}
	}
	for _, name := range types {
		if !made[name] && !slices.Contains(noKind, name) {
			t.Errorf("%s is a fault and no row of the table makes it: add one in catalogue.go", name)
		}
	}
}

// inSource lists the types of the package that have a method Inject, and the ids that are written in its
// identities and kinds of tampering.
func inSource(t *testing.T) (types, ids []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	must(t, err)
	for _, file := range files {
		if name := file.Name(); !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.SkipObjectResolution)
		must(t, err)
		literal := func(of ast.Expr, name string, values []ast.Expr) {
			if n, ok := of.(*ast.Ident); !ok || n.Name != name || len(values) == 0 {
				return
			}
			if l, ok := values[0].(*ast.BasicLit); ok {
				id, err := strconv.Unquote(l.Value)
				must(t, err)
				ids = append(ids, id)
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "Inject" {
					of := n.Recv.List[0].Type
					if star, ok := of.(*ast.StarExpr); ok {
						of = star.X
					}
					types = append(types, of.(*ast.Ident).Name)
				}
			case *ast.CallExpr:
				literal(n.Fun, "at", n.Args)
			case *ast.CompositeLit:
				literal(n.Type, "Tampering", n.Elts)
			}
			return true
		})
	}
	if len(types) < 50 || len(ids) < 50 {
		t.Fatalf("found only %q and %q", types, ids)
	}
	return types, ids
}

func TestFaultOfAnotherModule(t *testing.T) {
	row := Entry{
		ID: "toy-stop", About: "the toy stops", Component: "toy", Promise: "nothing is felt",
		Make: func(p Place) (Fault, error) { return imaginary{"toy stopped", "toy-stop", p.Node}, nil },
		from: "mychaos/toy.go:7",
	}
	table := ours()
	if err := table.add(row); err != nil {
		t.Fatal(err)
	}
	if e, ok := table.find("toy-stop"); !ok || e.Component != "toy" || len(table.all()) != len(ours().all())+1 {
		t.Errorf("%+v, %v", e, ok)
	}
	for want, change := range map[string]func(*Entry){
		`the id "etcd-stop" of mychaos/toy.go:7 ("the toy stops") is taken by package fault`: func(e *Entry) {
			e.ID = "etcd-stop"
		},
		`the id "toy-stop" of mychaos/other.go:1 ("the toy stops") is taken by mychaos/toy.go:7`: func(e *Entry) {
			e.from = "mychaos/other.go:1"
		},
		`the id "Toy" of`:    func(e *Entry) { e.ID = "Toy" },
		`the id "custom" of`: func(e *Entry) { e.ID = Custom },
		"has no component":   func(e *Entry) { e.Component = "" },
		"has no promise":     func(e *Entry) { e.Promise = "" },
		"has no sentence":    func(e *Entry) { e.About = "" },
		"has no constructor": func(e *Entry) { e.Make = nil },
	} {
		other := row
		change(&other)
		if err := table.add(other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, `"etcd-stop" of `) ||
			!strings.Contains(said, "table_test.go:") {
			t.Errorf("a taken id: %s", said)
		}
	}()
	row.ID = "etcd-stop"
	Register(row)
}

func TestCustomFaultsSayWhatTheyAre(t *testing.T) {
	if i := Identify(Done{Node: "node01", What: "rust"}); i.ID != Custom || i.Component != ComponentKernel ||
		i.Promise != "" || i.Params["what"] != "rust" || !slices.Equal(i.Nodes, []string{"node01"}) {
		t.Errorf("%+v", i)
	}
	if i := Identify(Done{ID: "etcd-stop", Node: "etcd", What: "by hand"}); i.Component != ComponentEtcd ||
		i.Promise == "" {
		t.Errorf("%+v", i)
	}
	if i := Identify(imaginary{}); i.ID != Custom {
		t.Errorf("%+v", i)
	}
	a := Partition{Shape: "x", Cut: [][2]string{{"node02", "node01"}}}
	b := Partition{Shape: "x", Cut: [][2]string{{"node01", "node02"}}}
	if Identify(a).same(Identify(b)) || !slices.Equal(Identify(a).Nodes, []string{"node01", "node02"}) {
		t.Errorf("%+v and %+v", Identify(a), Identify(b))
	}
}

// The parts of one injection hold apart what they hold, and are healed together.
func TestPartsOfSeveral(t *testing.T) {
	var s HealStack
	var holders []string
	part := func(name string) Fault { return held{imaginary{name: name, id: name}, &holders} }
	f := Several{What: "all", Faults: []Fault{part("a"), Several{What: "inner", Faults: []Fault{part("a")}}}}
	if err := f.Inject(t.Context(), s.Begin(nil, f)); err != nil {
		t.Fatal(err)
	}
	if len(holders) != 2 || holders[0] == holders[1] {
		t.Errorf("holders %q", holders)
	}
	if active := s.Active(); len(active) != 1 || active[0].Fault.Name() != "all" {
		t.Errorf("active %+v", active)
	}
	if err := s.HealOne(t.Context(), f); err != nil || len(s.Active()) != 0 {
		t.Errorf("%v, left %d", err, len(s.Active()))
	}
}

// held is a fault that holds something.
type held struct {
	imaginary
	holders *[]string
}

func (f held) Inject(_ context.Context, w *Injection) error {
	*f.holders = append(*f.holders, w.Holder())
	w.OnHeal(func(context.Context) error { return nil })
	return nil
}
