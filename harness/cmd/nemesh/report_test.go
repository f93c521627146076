package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const three = "../../../fixtures/records/three.jsonl"

// change copies the fixture with a text replaced.
func change(t *testing.T, old, replacement string) string {
	t.Helper()
	raw, err := os.ReadFile(three)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), old) {
		t.Fatalf("the fixture has no %s", old)
	}
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(raw), old, replacement)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExitCodes(t *testing.T) {
	failed := `"verdict":{"state":"failed"`
	whole := change(t, "flannel-636", "flannel-636")
	for name, c := range map[string]struct {
		args []string
		want int
	}{
		"report":             {[]string{"report", whole}, exitPassed},
		"report of a folder": {[]string{"report", filepath.Dir(whole)}, exitPassed},
		"report that contradicts": {[]string{"report", change(t, `"lost":300,"longest`,
			`"lost":301,"longest`)}, exitFailed},
		"report of nothing":         {[]string{"report", "/nowhere"}, exitUsage},
		"report of another version": {[]string{"report", change(t, `"version":2`, `"version":1`)}, exitUsage},
		"report without what":       {[]string{"report"}, exitUsage},
		"diff of the same":          {[]string{"diff", whole, whole}, exitPassed},
		"diff that got worse": {[]string{
			"diff", change(t, failed, `"verdict":{"state":"passed"`),
			whole,
		}, exitFailed},
		"diff that got better": {[]string{"diff", whole, change(t, failed,
			`"verdict":{"state":"passed"`)}, exitPassed},
		"diff with something else":      {[]string{"diff", whole, "/etc/hostname"}, exitUsage},
		"diff with one":                 {[]string{"diff", whole}, exitUsage},
		"diff that cannot be written":   {[]string{"diff", whole, whole, "--html", "/nowhere/x.html"}, exitUsage},
		"report that cannot be written": {[]string{"report", whole, "--out", "/proc/nowhere"}, exitUsage},
	} {
		if got := execute(c.args); got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

func TestReportLeavesEveryForm(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if code := execute([]string{"report", three, "--out", out}); code != exitPassed {
		t.Fatalf("exit code %d", code)
	}
	for _, name := range []string{"index.html", "summary.md", "junit.xml"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	page := filepath.Join(out, "diff.html")
	if code := execute([]string{"diff", three, three, "--html", page}); code != exitPassed {
		t.Fatalf("exit code %d", code)
	}
	if raw, err := os.ReadFile(page); err != nil || !strings.Contains(string(raw), "3 as before") {
		t.Errorf("%v", err)
	}
}
