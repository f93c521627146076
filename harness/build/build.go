// Package build finds the programs that a world needs, and builds them where they are not there: so that
// plain `go test` works as well as `make chaos`, in this repository and in any module that requires it.
package build

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Env names the environment variable with the folder of the binaries.
const Env = "NEMESH_BIN"

// target is one binary: what to build, with which tags.
type target struct{ name, pkg, tags string }

const plugins = "github.com/containernetworking/plugins/plugins"

// targets are what a world needs.
var targets = []target{
	{"overlayd", Module + "/overlay/cmd/overlayd", "grpcnotrace"},
	{"overlay-cni", Module + "/overlay/cmd/overlay-cni", ""},
	{"overlayd-defects", Module + "/overlay/cmd/overlayd", "grpcnotrace,defects"},
	{"overlay-cni-defects", Module + "/overlay/cmd/overlay-cni", "defects"},
	{"bridge", plugins + "/main/bridge", ""},
	{"host-local", plugins + "/ipam/host-local", ""},
}

// runner is the program that runs several scenarios side by side.
var runner = target{Runner, "github.com/onsi/ginkgo/v2/ginkgo", ""}

// Runner is the name of the Ginkgo CLI in the folder that ForRun returns.
const Runner = "ginkgo"

// Bin returns the folder of the binaries that the suite in the working directory needs. It is the one that
// NEMESH_BIN names; without that, the one of the nemesh module (Source.Bin), where they are built anew by
// the go command, which does nothing where nothing has changed. It sets NEMESH_BIN for the children. It
// must be called outside the sandbox, where the go command has a network.
func Bin() (string, error) { return bin(".", targets) }

// ForRun is Bin for the suite in a folder, and has the Ginkgo CLI built as well (Runner).
func ForRun(dir string) (string, error) { return bin(dir, append([]target{runner}, targets...)) }

func bin(dir string, wanted []target) (string, error) {
	if named := os.Getenv(Env); named != "" {
		return filepath.Abs(named)
	}
	source, err := Find(dir)
	if err != nil {
		return "", err
	}
	to, err := source.Bin()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", fmt.Errorf("make room for the binaries: %w (set %s to a folder that has them)", err, Env)
	}
	lacks := func(t target) bool { return !executable(filepath.Join(to, t.name)) }
	if slices.ContainsFunc(wanted, lacks) {
		fmt.Fprintf(os.Stderr, "nemesh: building what a world needs into %s; the first time takes minutes\n", to)
	}
	for _, t := range wanted {
		if source.Version != "" && !lacks(t) {
			continue // of a version that never changes
		}
		if err := t.build(source.Dir, to); err != nil {
			return "", err
		}
	}
	return to, os.Setenv(Env, to)
}

// Paths lists what a run of a suite needs in a folder, the Ginkgo CLI included.
func Paths(dir string) []string {
	var paths []string
	for _, t := range append([]target{runner}, targets...) {
		paths = append(paths, filepath.Join(dir, t.name))
	}
	return paths
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// build builds one binary into a folder. As the Makefile has them, it is static. What nemesh pins is what is
// built, whatever the suite's module asks for: without its workspace and its flags for go.mod.
func (t target) build(root, dir string) error {
	err := replace(filepath.Join(dir, t.name), func(temp string) error {
		_, err := run(root, []string{"CGO_ENABLED=0", "GOWORK=off"},
			"build", "-mod=readonly", "-tags", t.tags, "-o", temp, t.pkg)
		return err
	})
	if err != nil {
		return fmt.Errorf("build %s: %w", t.name, err)
	}
	return nil
}

// run runs the go command in a folder and returns what it prints. An error has what it said.
func run(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("the go command is needed and not in PATH: install Go (https://go.dev/dl), or set "+
			"%s to a folder with the binaries (%w)", Env, err)
	case err != nil:
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
