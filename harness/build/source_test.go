package build

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write lays out files, by path.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	own      = "module " + Module + "\n\ngo 1.26\n"
	outside  = "module example.com/chaos\n\ngo 1.26\n"
	requires = outside + "\nrequire " + Module + " v0.1.0\n"
)

func TestFind(t *testing.T) {
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOPROXY", "off")
	for name, c := range map[string]struct {
		files map[string]string
		want  string // of the errors, one part each
	}{
		"the repository itself": {map[string]string{"go.mod": own, "suite/x.go": "package suite\n"}, ""},
		"replaced": {map[string]string{
			"go.mod": own, "suite/go.mod": requires + "\nreplace " + Module + " => ../\n",
		}, ""},
		"a workspace": {map[string]string{
			"go.mod": own, "suite/go.mod": requires, "go.work": "go 1.26\n\nuse (\n\t.\n\t./suite\n)\n",
		}, ""},
		"not required": {map[string]string{"suite/go.mod": outside}, "type there: go get " + Module},
		"no module":    {map[string]string{"suite/x.go": "package suite\n"}, "nemesh new scenario NAME"},
		"not there":    {map[string]string{"suite/go.mod": requires}, "go mod download " + Module},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			got, err := Find(filepath.Join(dir, "suite"))
			switch {
			case c.want != "":
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %+v, %v; want %q", got, err, c.want)
				}
				return
			case err != nil || got != (Source{Dir: dir}):
				t.Fatalf("got %+v, %v", got, err)
			}
			if bin, err := got.Bin(); err != nil || bin != filepath.Join(dir, "bin") {
				t.Errorf("its binaries are in %s, %v", bin, err)
			}
		})
	}
}

func TestFindInModuleCache(t *testing.T) {
	dir := t.TempDir()
	const version = "v0.1.0"
	write(t, dir, map[string]string{
		"proxy/" + Module + "/@v/" + version + ".info": `{"Version":"` + version + `"}`,
		"proxy/" + Module + "/@v/" + version + ".mod":  own,
		"suite/go.mod": requires,
	})
	file, err := os.Create(filepath.Join(dir, "proxy", Module, "@v", version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(file)
	if w, err := z.Create(Module + "@" + version + "/go.mod"); err != nil {
		t.Fatal(err)
	} else if _, err := w.Write([]byte(own)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "file://"+filepath.Join(dir, "proxy"))
	t.Setenv("GOMODCACHE", filepath.Join(dir, "modules"))
	t.Setenv("GOFLAGS", "-modcacherw") // so that the test can tidy up
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	got, err := Find(filepath.Join(dir, "suite"))
	if want := filepath.Join(dir, "modules", Module+"@"+version); err != nil || got.Dir != want {
		t.Fatalf("got %+v, %v; want %s", got, err, want)
	}
	if bin, err := got.Bin(); err != nil || bin != filepath.Join(dir, "cache/nemesh", version) {
		t.Errorf("its binaries are in %s, %v", bin, err)
	}
	t.Setenv("XDG_CACHE_HOME", "/run/user/0/cache")
	if bin, err := got.Bin(); err == nil || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("a folder that the sandbox does not see: %s, %v", bin, err)
	}
}
