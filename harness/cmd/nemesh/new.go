package main

import (
	"bytes"
	_ "embed" // for the template
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/build"
)

//go:embed templates/scenario.txt
var scenarioTemplate string

// newScenario is a first scenario that is to be written.
type newScenario struct {
	Name    string
	Package string
	// Module and Version are nemesh's, Go the version of Go that it asks for. Checkout is a folder to take it
	// from in place of that version, if any.
	Module, Version, Go, Checkout string
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Write a first scenario of your own",
	}
	var checkout string
	scenario := &cobra.Command{
		Use:   "scenario NAME",
		Short: "Write a Go module with a scenario that runs as it is",
		Long: `Write a folder NAME with a Go module of its own and a scenario in it that runs as it is. In a Go
module that is there already the folder is a package of it; in the nemesh repository the scenario is written
to scenarios/NAME_test.go. NAME is small letters, digits and hyphens. Nothing is overwritten.`,
		Example: `  nemesh new scenario etcd-away
  nemesh run --suite etcd-away`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeScenario(cmd.OutOrStdout(), args[0], checkout)
		},
	}
	scenario.Flags().
		StringVar(&checkout, "nemesh", "", "`folder` of a checkout of nemesh to use (default: the "+
			"one in which nemesh was built, or its version)")
	cmd.AddCommand(scenario)
	return cmd
}

// scenarioName is what a scenario may be called: a file, a folder and a label are named after it.
var scenarioName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// writeScenario writes a first scenario for the working directory, and says what to type next.
func writeScenario(out io.Writer, name, checkout string) error {
	if !scenarioName.MatchString(name) {
		return fmt.Errorf(
			"%q is no name for a scenario: small letters, digits and hyphens make one, such as etcd-away",
			name,
		)
	}
	s := newScenario{Name: name, Package: "chaos", Module: build.Module}
	module, err := moduleAbove(".")
	if err != nil {
		return err
	}
	switch {
	case module == build.Module:
		source, err := build.Find(".")
		if err != nil {
			return err
		}
		s.Package = "scenarios"
		dir := filepath.Join(source.Dir, "scenarios")
		if err := s.write(dir, s.Name+"_test.go"); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\nrun it: make chaos FOCUS='%s '\n", filepath.Join(dir, s.Name+"_test.go"), name)
		return nil
	case module != "":
		if err := s.write(name, "suite_test.go", s.Name+"_test.go", "README.md"); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: a package of %s\n", name, module)
		if _, err := build.Find(name); err != nil {
			fmt.Fprintf(out, "get nemesh: go get %s\n", build.Module)
		}
	default:
		if err := s.require(checkout); err != nil {
			return err
		}
		if err := s.write(name, "go.mod", "suite_test.go", s.Name+"_test.go", "README.md"); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: a module of its own\n", name)
		if err := build.Complete(name); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "run it: nemesh run --suite %s\n", name)
	return nil
}

// moduleAbove returns the path of the Go module that a folder is in, "" for none.
func moduleAbove(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the Go module: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			return modulePath(raw), nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find the Go module: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", nil
		}
	}
}

// modulePath reads the path of the module in a go.mod.
func modulePath(mod []byte) string {
	for line := range bytes.Lines(mod) {
		if fields := strings.Fields(string(line)); len(fields) > 1 && fields[0] == "module" {
			return strings.Trim(fields[1], `"`)
		}
	}
	return ""
}

// goVersion reads the version of Go that a go.mod asks for.
var goVersion = regexp.MustCompile(`(?m)^go (\S+)`)

// require finds which nemesh the module is to require: a checkout, the one in which this program was built,
// or its version.
func (s *newScenario) require(checkout string) error {
	named := checkout != ""
	if !named {
		bin, err := folder("")
		if err != nil {
			return err
		}
		checkout = filepath.Dir(bin) // of bin/ in a checkout
	}
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		return fmt.Errorf("find the checkout of nemesh: %w", err)
	}
	if mod, err := os.ReadFile(
		filepath.Join(checkout, "go.mod"),
	); err == nil &&
		modulePath(mod) == build.Module {
		s.Checkout, s.Version = checkout, "v0.0.0"
		if found := goVersion.FindSubmatch(mod); found != nil {
			s.Go = string(found[1])
		}
		return nil
	}
	if named {
		return fmt.Errorf("%s is no checkout of nemesh: it has no go.mod of %s", checkout, build.Module)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || !strings.HasPrefix(info.Main.Version, "v") {
		return fmt.Errorf(
			"this nemesh does not know its version: name a checkout with --nemesh, or install nemesh "+
				"with: go install %s/harness/cmd/nemesh@latest",
			build.Module,
		)
	}
	s.Version, s.Go = info.Main.Version, strings.TrimPrefix(info.GoVersion, "go")
	return nil
}

// write writes files of the template into a folder. It overwrites nothing, and nothing is written if one of
// them is there.
func (s newScenario) write(dir string, names ...string) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there already: choose another name, or delete it first", path)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the scenario: %w", err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o644); err != nil {
			return fmt.Errorf("write the scenario: %w", err)
		}
	}
	return nil
}

// files fills in the template. What comes before its first part is for whoever reads it.
func (s newScenario) files() (map[string][]byte, error) {
	parsed, err := template.New("scenario").Parse(scenarioTemplate)
	if err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, s); err != nil {
		return nil, fmt.Errorf("fill in the template: %w", err)
	}
	files := map[string][]byte{}
	name := ""
	for line := range bytes.Lines(filled.Bytes()) {
		if begun, ok := strings.CutPrefix(string(line), "-- "); ok && strings.HasSuffix(begun, " --\n") {
			name = strings.TrimSuffix(begun, " --\n")
			continue
		}
		files[name] = append(files[name], line...)
	}
	return files, nil
}
