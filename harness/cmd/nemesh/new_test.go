package main

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/build"
)

// A new scenario compiles, passes go vet, and runs green as it is.
func TestNewScenarioRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	code, said := nemesh(t, dir, "new", "scenario", "my-report", "--nemesh", checkout)
	if want := "nemesh run --suite my-report"; code != exitPassed || !strings.Contains(said, want) {
		t.Fatalf("exit code %d, want %q in:\n%s", code, want, said)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", ".")
	vet.Dir = filepath.Join(dir, "my-report")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Fatalf("go vet: %v\n%s", err, out)
	}
	bin, err := build.ForRun(".")
	if err != nil {
		t.Fatal(err)
	}
	code, said = nemesh(t, dir, "run", "--suite", "my-report", "--bin", bin)
	if want := "1 passed, 0 failed"; code != exitPassed || !strings.Contains(said, want) {
		t.Errorf("exit code %d, want %q in:\n%s", code, want, said)
	}
	code, said = nemesh(t, dir, "new", "scenario", "my-report", "--nemesh", checkout)
	if want := "go.mod is there already"; code != exitUsage || !strings.Contains(said, want) {
		t.Errorf("it is written again: exit code %d, want %q in:\n%s", code, want, said)
	}
}

// inDir lays out files by path in a folder of the test's and changes to it.
func inDir(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestNewScenarioInTheRepository(t *testing.T) {
	inDir(
		t,
		map[string]string{"go.mod": "module " + build.Module + "\n", "scenarios/x_test.go": "package scenarios\n"},
	)
	var said bytes.Buffer
	if err := writeScenario(&said, "my-report", ""); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("scenarios/my-report_test.go")
	if err != nil || !bytes.HasPrefix(raw, []byte("package scenarios\n")) {
		t.Fatalf("%v\n%s", err, raw)
	}
	if tidy, err := format.Source(raw); err != nil || !bytes.Equal(tidy, raw) {
		t.Errorf("it is not as gofmt has it: %v\n%s", err, raw)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 2 {
		t.Errorf("more than the scenario is written: %v, %v", entries, err)
	}
	err = writeScenario(&said, "my-report", "")
	if err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("it is overwritten: %v", err)
	}
}

func TestNewScenarioInAnotherModule(t *testing.T) {
	inDir(t, map[string]string{"go.mod": "module example.com/x\n\ngo 1.26\n"})
	var said bytes.Buffer
	if err := writeScenario(&said, "my-report", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("my-report/go.mod"); err == nil {
		t.Error("a module is made within a module")
	}
	for _, want := range []string{"suite_test.go", "my-report_test.go", "README.md"} {
		if _, err := os.Stat(filepath.Join("my-report", want)); err != nil {
			t.Error(err)
		}
	}
	if want := "go get " + build.Module; !strings.Contains(said.String(), want) {
		t.Errorf("want %q in:\n%s", want, said.String())
	}
}

func TestNamesOfNewScenarios(t *testing.T) {
	inDir(t, nil)
	for _, name := range []string{"", "Report", "my report", "../x", "-x", "x-", "x--y", "x.y", "7"} {
		err := writeScenario(&bytes.Buffer{}, name, "")
		if err == nil || !strings.Contains(err.Error(), "no name for a scenario") {
			t.Errorf("%q: %v", name, err)
		}
	}
	err := writeScenario(&bytes.Buffer{}, "x", ".")
	if err == nil || !strings.Contains(err.Error(), "no checkout of nemesh") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("something is written all the same: %v, %v", entries, err)
	}
}
