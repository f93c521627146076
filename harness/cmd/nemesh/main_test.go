package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/nemesh/nemesh/harness/build"
)

// asNemesh names the environment variable that has this test binary be nemesh.
const asNemesh = "NEMESH_TEST_AS_NEMESH"

func TestMain(m *testing.M) {
	if os.Getenv(asNemesh) != "" {
		main()
	}
	os.Exit(m.Run())
}

// nemesh runs this binary as nemesh in a folder. It has none of the others beside it and builds them. It
// returns the exit code and all that was printed.
func nemesh(t *testing.T, dir string, args ...string) (int, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asNemesh+"=1", build.Env+"=", "GITHUB_ACTIONS=", "GITHUB_STEP_SUMMARY=")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), said.String()
}
