package suite

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// parsed reads the Go files of a package, those of its tests as well where wanted says so.
func parsed(t *testing.T, dir string, wanted func(fs.FileInfo) bool) []*ast.File {
	t.Helper()
	packages, err := parser.ParseDir(token.NewFileSet(), dir, wanted, parser.ParseComments) //nolint:staticcheck
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, p := range packages {
		for _, f := range p.Files {
			files = append(files, f)
		}
	}
	return files
}

func noTest(i fs.FileInfo) bool { return !strings.HasSuffix(i.Name(), "_test.go") }

// aliases returns what suite calls the types of other packages, by "package.Name".
func aliases(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, f := range parsed(t, ".", noTest) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Assign.IsValid() {
				return true
			}
			if s, ok := spec.Type.(*ast.SelectorExpr); ok {
				all[s.X.(*ast.Ident).Name+"."+s.Sel.Name] = spec.Name.Name
			}
			return true
		})
	}
	return all
}

// Whatever a method of a cluster takes or returns can be named by a module that imports suite alone.
func TestTypesHaveNames(t *testing.T) {
	named := aliases(t)
	for _, on := range []reflect.Type{
		reflect.TypeFor[*Cluster](), reflect.TypeFor[*Suite](), reflect.TypeFor[World](),
	} {
		for m := range on.Methods() {
			for i := range m.Type.NumIn() + m.Type.NumOut() {
				var v reflect.Type
				if i < m.Type.NumIn() {
					v = m.Type.In(i)
				} else {
					v = m.Type.Out(i - m.Type.NumIn())
				}
				for v.Name() == "" && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice}, v.Kind()) {
					v = v.Elem()
				}
				inside := strings.HasPrefix(v.PkgPath(), "github.com/nemesh/nemesh/") &&
					v != reflect.TypeFor[Cluster]() &&
					v != reflect.TypeFor[Suite]()
				if inside && named[v.String()] == "" {
					t.Errorf("%s of %s has %s, for which suite has no name", m.Name, on, v)
				}
			}
		}
	}
}

// Each fault of package fault has its name here.
func TestFaultsHaveNames(t *testing.T) {
	named := aliases(t)
	faults := 0
	for _, f := range parsed(t, "../fault", noTest) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != "Inject" || fn.Recv == nil {
				continue
			}
			on := fn.Recv.List[0].Type
			if p, ok := on.(*ast.StarExpr); ok {
				on = p.X
			}
			name := on.(*ast.Ident).Name
			faults++
			if ast.IsExported(name) && named["fault."+name] != name {
				t.Errorf("fault.%s has no alias in faults.go", name)
			}
		}
	}
	if faults < 50 {
		t.Errorf("%d faults are found: the test looks in the wrong place", faults)
	}
}

// Every exported function and method of suite has a doc comment and is used in an Example.
func TestExamplesNameEveryVerb(t *testing.T) {
	var shown strings.Builder
	examples := func(i fs.FileInfo) bool { return strings.HasPrefix(i.Name(), "example") }
	for _, f := range parsed(t, ".", examples) {
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				shown.WriteString(id.Name + "\n")
			}
			return true
		})
	}
	for _, f := range parsed(t, ".", noTest) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			if fn.Recv != nil && !regexp.MustCompile(`^(Cluster|Suite)$`).MatchString(receiver(fn)) {
				continue
			}
			if fn.Doc == nil {
				t.Errorf("%s has no doc comment", fn.Name.Name)
			}
			if !strings.Contains("\n"+shown.String(), "\n"+fn.Name.Name+"\n") {
				t.Errorf("no Example uses %s", fn.Name.Name)
			}
		}
	}
}

// receiver names the type that a method is of.
func receiver(fn *ast.FuncDecl) string {
	on := fn.Recv.List[0].Type
	if p, ok := on.(*ast.StarExpr); ok {
		on = p.X
	}
	id, _ := on.(*ast.Ident)
	if id == nil {
		return ""
	}
	return id.Name
}
