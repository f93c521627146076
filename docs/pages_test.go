package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the documents that people read first.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "runs") {
			return fs.SkipDir
		}
		if filepath.Ext(file) == ".md" && d.Type().IsRegular() {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			all[file] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var link = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`) // to a file, not to an address

func TestLinksLeadToFiles(t *testing.T) {
	n := 0
	for file, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			n++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d links were found", n)
	}
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// Go code in the pages is quoted from a file, so that it compiles. Space between words may differ.
func TestCodeIsQuotedFromAFile(t *testing.T) {
	plain := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	var sources strings.Builder
	for _, pattern := range []string{"scenarios/*.go", "harness/suite/*.go", "fixtures/outside/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.WriteString(plain(string(text)) + "\n")
		}
	}
	n := 0
	for file, text := range pages(t) {
		for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
			n++
			if !strings.Contains(sources.String(), plain(m[1])) {
				t.Errorf("%s: no file in scenarios, harness/suite or fixtures/outside has this code:\n%s", file, m[1])
			}
		}
	}
	if n < 2 {
		t.Errorf("only %d blocks of Go were found", n)
	}
}

var (
	finding  = regexp.MustCompile(`(?m)^\| \[\d+\].*\| ([^|]*) \| ([^|]*) \|$`)
	version  = regexp.MustCompile(`v\d+\.\d+\.\d+`)
	filter   = regexp.MustCompile(`'([^']*)'`)
	scenario = regexp.MustCompile(`(?m)^  - scenario: (.*)$`)
)

// What docs/findings.md says is seen in a version must be an expected failure in that version's baseline.
// Each filter of the row's command must find one.
func TestFindingsAreInTheBaselines(t *testing.T) {
	text, err := os.ReadFile("findings.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, row := range finding.FindAllStringSubmatch(string(text), -1) {
		for _, v := range version.FindAllString(row[1], -1) {
			baseline, err := os.ReadFile(filepath.Join(root, "fixtures", "baselines", "flanneld-"+v+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var failing []string
			for _, m := range scenario.FindAllStringSubmatch(string(baseline), -1) {
				failing = append(failing, strings.Trim(m[1], `"`))
			}
			for _, f := range filter.FindAllStringSubmatch(row[2], -1) {
				n++
				if len(failing) == 0 || !regexp.MustCompile(f[1]).MatchString(strings.Join(failing, "\n")) {
					t.Errorf("no expected failure of %s matches '%s'", v, f[1])
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d findings were looked up", n)
	}
}
