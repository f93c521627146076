// Package docs holds the project's pages and the test that draws docs/architecture.md from the imports.
//
//	make docs    # draw the page and write depguard's rules again
package docs

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/architecture.md and depguard's rules again")

const (
	module = "github.com/nemesh/nemesh/"
	root   = ".."
)

// house lists every package of the project by floor, the top floor first. A package imports only packages on
// lower floors of its own stack. Those of harness above the bottom floor also import reports. Floors are
// written down here only: the page and depguard's rules in .golangci.yml are made from this.
var house = []stack{
	{"harness", [][]string{
		{"harness/cmd/nemesh", "scenarios"},
		{"harness/suite", "harness/compare"},
		{"harness/checker", "harness/recorder"},
		{"harness/cluster"},
		{"harness/fault", "harness/enter", "harness/follow"},
		{"harness/driver", "harness/etcd", "harness/pod"},
		{"harness/node"},
		{"harness/underlay", "harness/probe", "harness/observe", "harness/flannelkeys"},
		{"harness/sandbox", "harness/ns", "harness/preflight", "harness/build", "harness/wait", "fixtures"},
	}},
	{"reports", [][]string{
		{"reports/html", "reports/junit"},
		{"reports/text"},
		{"reports/record", "reports/explain"},
	}},
	{"overlay", [][]string{
		{"overlay/cmd/overlayd", "overlay/cmd/overlay-cni"},
		{"overlay/agent", "overlay/cni"},
		{"overlay/kernel"},
		{"overlay/plan"},
		{"overlay/lease"},
		{"overlay/netconf", "overlay/netlinksafe", "overlay/defect"},
	}},
}

var (
	// forScenarios is all that a scenario imports, forOutside all that a module of its own does.
	forScenarios = []string{"harness/suite"}
	forOutside   = []string{"harness/suite", "harness/driver"}
	// forOverlayTests is what the tests of overlay import of harness: they need a kernel of their own.
	forOverlayTests = []string{"harness/sandbox", "harness/ns"}
)

// stack is a column of floors, the top one first.
type stack struct {
	name   string
	floors [][]string
}

// above lists the packages on the floors above floors[i].
func (s stack) above(i int) []string { return slices.Concat(s.floors[:i]...) }

// all lists every package of the stack.
func (s stack) all() []string { return s.above(len(s.floors)) }

// floorOf finds a package in the house. The bottom floor of each stack is number 1.
func floorOf(pkg string) (stack string, floor int) {
	for _, s := range house {
		for i, f := range s.floors {
			if slices.Contains(f, pkg) {
				return s.name, len(s.floors) - i
			}
		}
	}
	return "", 0
}

// allowed reports whether the house lets one package import another.
func allowed(from, to string) bool {
	if from == "scenarios" {
		return slices.Contains(forScenarios, to)
	}
	fromStack, fromFloor := floorOf(from)
	toStack, toFloor := floorOf(to)
	switch {
	case fromStack == "" || toStack == "":
		return false
	case fromStack == toStack:
		return fromFloor > toFloor
	default:
		return fromStack == "harness" && toStack == "reports" && fromFloor > 1
	}
}

// room is a package as it is.
type room struct {
	synopsis       string
	imports, tests []string // of this module: in its files and in its tests'
}

// survey reads the imports of every package below the root, with every build tag, and what modules of their
// own below it import of this one. Paths are relative to the root.
func survey(t *testing.T) (rooms map[string]*room, outside map[string][]string) {
	t.Helper()
	rooms, outside = map[string]*room{}, map[string][]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(file) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		found := importsOf(parsed)
		if other := moduleAbove(dir); other != "" {
			outside[other] = append(outside[other], found...)
			return nil
		}
		if dir == "docs" {
			return nil
		}
		if rooms[dir] == nil {
			rooms[dir] = &room{}
		}
		r := rooms[dir]
		if parsed.Doc != nil && !strings.HasSuffix(parsed.Name.Name, "_test") {
			r.synopsis = synopsis(parsed.Doc.Text())
		}
		if strings.HasSuffix(file, "_test.go") && dir != "scenarios" { // whose files are all tests
			r.tests = append(r.tests, found...)
		} else {
			r.imports = append(r.imports, found...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		r.imports, r.tests = unique(r.imports), unique(r.tests)
	}
	return rooms, outside
}

// importsOf lists which packages of this module a file imports.
func importsOf(f *ast.File) []string {
	var found []string
	for _, spec := range f.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil && strings.HasPrefix(name, module) {
			found = append(found, strings.TrimPrefix(name, module))
		}
	}
	return found
}

// moduleAbove finds the folder of the module that a folder belongs to; "" is this one.
func moduleAbove(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
			return dir
		}
	}
	return ""
}

// synopsis is the first sentence of a package's comment, without "Package x".
func synopsis(comment string) string {
	var p doc.Package
	text := p.Synopsis(comment)
	for _, lead := range []string{"Package ", "Command "} {
		if rest, ok := strings.CutPrefix(text, lead); ok {
			if _, rest, ok = strings.Cut(rest, " "); ok {
				return strings.TrimSuffix(rest, ".")
			}
		}
	}
	return strings.TrimSuffix(text, ".")
}

func unique(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

func TestEveryPackageHasAFloor(t *testing.T) {
	rooms, _ := survey(t)
	for _, pkg := range slices.Sorted(maps.Keys(rooms)) {
		if s, _ := floorOf(pkg); s == "" {
			t.Errorf("%s is on no floor: add it to house in docs/architecture_test.go and run make docs", pkg)
		}
	}
	for _, s := range house {
		for _, pkg := range s.all() {
			if rooms[pkg] == nil {
				t.Errorf("%s is gone: take it out of house in docs/architecture_test.go and run make docs", pkg)
			}
		}
	}
}

func TestImportsPointDown(t *testing.T) {
	rooms, outside := survey(t)
	for _, from := range slices.Sorted(maps.Keys(rooms)) {
		for _, to := range rooms[from].imports {
			if !allowed(from, to) {
				t.Errorf("%s imports %s, which is not on a lower floor", from, to)
			}
		}
		for _, to := range rooms[from].tests {
			own, target := strings.Split(from, "/")[0], strings.Split(to, "/")[0]
			if (own == "reports" || own == "overlay") && target != own &&
				(own != "overlay" || !slices.Contains(forOverlayTests, to)) {
				t.Errorf("a test of %s imports %s: %s stands apart", from, to, own)
			}
		}
	}
	for dir, imports := range outside {
		for _, to := range unique(imports) {
			if !slices.Contains(forOutside, to) {
				t.Errorf("%s, a module of its own, imports %s; only %s are promised to it", dir, to,
					strings.Join(forOutside, " and "))
			}
		}
	}
}

func TestAllowedIsDown(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"harness/cluster", "harness/node", true},
		{"harness/node", "harness/cluster", false},
		{"harness/checker", "harness/recorder", false}, // the same floor
		{"harness/checker", "reports/record", true},
		{"harness/ns", "reports/record", false}, // the bottom floor
		{"reports/html", "reports/record", true},
		{"reports/html", "harness/ns", false},
		{"overlay/agent", "harness/sandbox", false},
		{"harness/driver", "overlay/lease", false},
		{"scenarios", "harness/suite", true},
		{"scenarios", "harness/fault", false},
		{"harness/suite", "harness/new", false}, // on no floor
	} {
		if got := allowed(c.from, c.to); got != c.want {
			t.Errorf("%s → %s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestPageIsCurrent(t *testing.T) {
	rooms, _ := survey(t)
	current(t, "architecture.md", "<!-- drawn by make docs -->\n", "<!-- end -->\n", page(rooms))
}

func TestLintRulesAreTheHouse(t *testing.T) {
	file := filepath.Join(root, ".golangci.yml")
	current(t, file, "        # written by make docs\n", "        # end\n", rules())
}

// current compares what stands between two marks of a file with what should, and with -update replaces it.
func current(t *testing.T, file, begin, end, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(text, []byte(begin))
	got, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	if string(got) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is stale: run make docs", file)
	}
	text = slices.Concat(before, []byte(begin+want+end), after)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// page draws the house: a picture for each stack, and a table with every package.
func page(rooms map[string]*room) string {
	var b strings.Builder
	arrows, wrong := 0, 0
	for from, r := range rooms {
		for _, to := range r.imports {
			arrows++
			if !allowed(from, to) {
				wrong++
			}
		}
	}
	fmt.Fprintf(&b, "\n%d packages, %d imports among them, %d not to a lower floor.\n",
		len(rooms), arrows, wrong)
	for _, s := range house {
		fmt.Fprintf(&b, "\n## %s\n\n```mermaid\nflowchart TD\n", s.name)
		for i, f := range s.floors {
			fmt.Fprintf(&b, "  subgraph f%d [\"floor %d\"]\n", len(s.floors)-i, len(s.floors)-i)
			for _, pkg := range f {
				fmt.Fprintf(&b, "    %s[%q]\n", id(pkg), strings.TrimPrefix(pkg, s.name+"/"))
			}
			fmt.Fprint(&b, "  end\n")
		}
		for _, from := range s.all() {
			for _, to := range shortest(rooms, from) {
				if own, _ := floorOf(to); own == s.name {
					fmt.Fprintf(&b, "  %s --> %s\n", id(from), id(to))
				}
			}
		}
		fmt.Fprint(&b, "```\n\n| floor | package | what it does | imports |\n|---|---|---|---|\n")
		for i, f := range s.floors {
			for _, pkg := range f {
				r := rooms[pkg]
				if r == nil {
					continue // TestEveryPackageHasAFloor says so
				}
				var imports []string
				for _, to := range r.imports {
					imports = append(imports, strings.TrimPrefix(to, s.name+"/"))
				}
				fmt.Fprintf(&b, "| %d | [%s](../%s) | %s | %s |\n", len(s.floors)-i,
					strings.TrimPrefix(pkg, s.name+"/"), pkg, r.synopsis, strings.Join(imports, ", "))
			}
		}
	}
	fmt.Fprint(&b, "\n")
	return b.String()
}

// id is the name of a package in a picture.
func id(pkg string) string { return strings.NewReplacer("/", "_", "-", "_").Replace(pkg) }

// shortest lists the imports of a package that it does not have through another one as well.
func shortest(rooms map[string]*room, from string) []string {
	if rooms[from] == nil {
		return nil
	}
	var direct []string
	for _, to := range rooms[from].imports {
		if !slices.ContainsFunc(rooms[from].imports, func(via string) bool {
			return via != to && reaches(rooms, via, to)
		}) {
			direct = append(direct, to)
		}
	}
	return direct
}

// reaches reports whether a package imports another, itself or through others. Imports have no circles.
func reaches(rooms map[string]*room, from, to string) bool {
	return rooms[from] != nil && slices.ContainsFunc(rooms[from].imports, func(via string) bool {
		return via == to || reaches(rooms, via, to)
	})
}

// rules writes depguard's rules: for each floor who must not import it, then what scenarios and tests may.
func rules() string {
	const down = "import only packages on lower floors (docs/architecture.md)"
	var b strings.Builder
	for _, s := range house {
		for i, f := range s.floors {
			fmt.Fprintf(&b, "        %s-%d:\n          files:\n            - \"!$test\"\n", s.name, len(s.floors)-i)
			if s.name == "reports" {
				harness := house[0]
				except(&b, harness.name, harness.above(len(harness.floors)-1))
			}
			except(&b, s.name, s.above(i))
			fmt.Fprint(&b, "          deny:\n")
			for _, pkg := range f {
				deny(&b, pkg+"$", down)
			}
		}
	}
	only := func(name, files, tree, why string, but []string) {
		fmt.Fprintf(&b, "        %s:\n          list-mode: lax\n          files: [%q]\n", name, files)
		if len(but) > 0 {
			fmt.Fprint(&b, "          allow:\n")
		}
		for _, pkg := range but {
			fmt.Fprintf(&b, "            - %s%s$\n", module, pkg)
		}
		fmt.Fprint(&b, "          deny:\n")
		deny(&b, tree, why)
	}
	only("scenarios", "**/scenarios/*.go", "", "a scenario imports only harness/suite", forScenarios)
	only("overlay-tests", "**/overlay/**/*_test.go", "harness/",
		"a test of overlay imports only harness/sandbox and harness/ns", forOverlayTests)
	only("reports-tests", "**/reports/**/*_test.go", "harness/", "reports imports nothing of harness", nil)
	return b.String()
}

// except writes that a rule is not about some packages. Those that consist of tests are not anyway.
func except(b *strings.Builder, stack string, pkgs []string) {
	var short []string
	for _, pkg := range pkgs {
		if rest, ok := strings.CutPrefix(pkg, stack+"/"); ok {
			short = append(short, rest)
		}
	}
	if len(short) > 0 {
		fmt.Fprintf(b, "            - \"!**/%s/{%s}/*.go\"\n", stack, strings.Join(short, ","))
	}
}

func deny(b *strings.Builder, pkg, why string) {
	fmt.Fprintf(b, "            - {pkg: %s%s, desc: %s}\n", module, pkg, why)
}
