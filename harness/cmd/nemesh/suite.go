package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/suite"
)

// compiledEnv names the environment variable with which a nemesh that has compiled a suite tells those
// that it starts: itself in the sandbox, and one for each defect.
const compiledEnv = "NEMESH_COMPILED_SUITE"

// suiteFlag chooses the scenarios: those of this repository, or a suite of the user's.
type suiteFlag struct {
	// dir is the folder of the user's suite, "" for nemesh's own scenarios, and test its compiled form. typed
	// is the folder as it was typed.
	dir, test, typed string
}

// add declares the flag.
func (s *suiteFlag) add(f *pflag.FlagSet) {
	f.StringVar(&s.dir, "suite", "", "`folder` with scenarios of your own, in a Go module that requires "+
		build.Module+" (default: nemesh's scenarios)")
}

// args are the flags with which another nemesh uses the same suite.
func (s *suiteFlag) args() []string {
	if s.dir == "" {
		return nil
	}
	return []string{"--suite=" + s.dir}
}

// find finds the compiled suite, and compiles a user's. bin is the folder of the binaries, "" for where
// nemesh is; it returns the one to use. Where that lacks what a run of a user's suite needs, it is built.
func (s *suiteFlag) find(bin string) (string, error) {
	named := bin != ""
	bin, err := folder(bin)
	if err != nil {
		return "", err
	}
	if s.dir == "" {
		s.test = filepath.Join(bin, "scenarios.test")
		return bin, needed(filepath.Join(bin, build.Runner), s.test)
	}
	s.typed = s.dir
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return "", fmt.Errorf("find the suite: %w", err)
	}
	if strings.HasPrefix(s.dir+"/", "/run/") {
		return "", fmt.Errorf(
			"the suite %s is under /run, of which the sandbox has one of its own: move it elsewhere",
			s.dir,
		)
	}
	if before, ok := strings.CutPrefix(os.Getenv(compiledEnv), s.dir+"\n"); ok {
		s.test, bin, _ = strings.Cut(before, "\n")
		return bin, nil
	}
	if sandbox.Inside() {
		return "", errors.New("a suite is compiled outside the sandbox only: run nemesh there")
	}
	lacks := needed(build.Paths(bin)...)
	if lacks != nil && named {
		return "", lacks
	}
	if lacks != nil {
		if bin, err = build.ForRun(s.dir); err != nil {
			return "", err
		}
	}
	if s.test, err = build.Suite(s.dir); err != nil {
		return "", err
	}
	return bin, os.Setenv(compiledEnv, strings.Join([]string{s.dir, s.test, bin}, "\n"))
}

// folder is where the binaries are: the one that is named, or nemesh's own.
func folder(named string) (string, error) {
	if named == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the binaries: %w", err)
		}
		named = filepath.Dir(self)
	}
	full, err := filepath.Abs(named)
	if err != nil {
		return "", fmt.Errorf("find the binaries: %w", err)
	}
	return full, nil
}

// needed looks for what a run cannot do without.
func needed(paths ...string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s is not in %s: run `make build`, or name the folder with --bin (%w)",
				filepath.Base(path), filepath.Dir(path), err)
		}
	}
	return nil
}

// env tells the suite where its files are.
func (s *suiteFlag) env() []string {
	if s.dir == "" {
		return nil
	}
	return []string{suite.DirEnv + "=" + s.dir}
}

// askWithin bounds the question to a suite.
const askWithin = 20 * time.Second

// ask asks a user's suite what it has of its own; nothing for nemesh's scenarios.
func (s *suiteFlag) ask(ctx context.Context, bin string) (suite.Answer, error) {
	var a suite.Answer
	if s.dir == "" {
		return a, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	// A suite that does not know the question has no test of that name, and says nothing.
	cmd := exec.CommandContext(ctx, s.test, "-test.run=^$")
	cmd.Env = append(append(os.Environ(), suite.AskEnv+"=1", build.Env+"="+bin), s.env()...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return a, fmt.Errorf("the suite in %s does not start: %w\n%s", s.dir, err, exit.Stderr)
	case err != nil:
		return a, fmt.Errorf("the suite in %s does not start: %w", s.dir, err)
	}
	if json.Unmarshal(out, &a) != nil {
		return a, fmt.Errorf("the suite in %s does not call suite.Main: write in one of its files\n"+
			"  func TestMain(m *testing.M) { suite.Main(m) }", s.dir)
	}
	return a, nil
}

// withOwn adds the faults that a user's suite has registered.
func withOwn(known []fault.Entry, own suite.Answer) []fault.Entry {
	for _, f := range own.Faults {
		if !slices.ContainsFunc(known, func(e fault.Entry) bool { return e.ID == f.ID }) {
			known = append(known, fault.Entry{
				ID: f.ID, About: f.About, Component: fault.Component(f.Component), Promise: f.Promise, Params: f.Params,
				Lasting: f.Lasting,
			})
		}
	}
	return known
}

// prepare has the flags of a run mean what the user's suite has of its own: its agents, and the failures
// that are expected of them, in its folder baselines.
func (s *suiteFlag) prepare(ctx context.Context, w *worldFlags, bin string) error {
	if s.dir == "" {
		return nil
	}
	a, err := s.ask(ctx, bin)
	if err != nil {
		return err
	}
	for _, g := range a.Agents {
		driver.Register(g.Name, told{g})
	}
	if w.baseline == "" {
		w.baseline = filepath.Join(s.dir, "baselines")
		if _, err := os.Stat(w.baseline); err != nil {
			w.baseline = "none"
		}
	}
	return nil
}

// about says which agent a run tests.
func (w *worldFlags) about() string {
	said := strings.TrimSpace(w.name + " " + w.version)
	if w.choice.Agent != w.name {
		said += ", " + w.choice.Agent
	}
	return "agent: " + said + "\n"
}

// told is a driver of a user's suite as far as it has told of it. Only the suite itself can start its agent.
type told struct{ suite.AgentAnswer }

// Name implements driver.Driver.
func (t told) Name() string { return t.AgentAnswer.Name }

// Check implements driver.Driver.
func (t told) Check() error {
	if t.Refused != "" {
		return errors.New(t.Refused)
	}
	return nil
}

// Command implements driver.Driver.
func (told) Command(driver.Spec) node.Command { return node.Command{} }

// SubnetFile implements driver.Driver.
func (told) SubnetFile() string { return "" }

// Device implements driver.Driver.
func (told) Device(int) string { return "" }

// CNI implements driver.Driver.
func (told) CNI() ([]byte, []string) { return nil, nil }

// Lacks implements driver.Limited.
func (t told) Lacks() []driver.Feature { return t.AgentAnswer.Lacks }

// KeyPrefix implements driver.KeyKeeper.
func (t told) KeyPrefix() string {
	if slices.Contains(t.AgentAnswer.Lacks, driver.FeatureKeys) {
		return ""
	}
	return driver.DefaultPrefix
}

// Version implements driver.Versioned; "" where the agent cannot be asked.
//
//nolint:unparam // the error is the interface's
func (t told) Version(context.Context) (string, error) { return t.AgentAnswer.Version, nil }
