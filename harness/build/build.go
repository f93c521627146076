// Package build finds the binaries that a world needs, and builds them where they are not there: so that
// plain `go test` works as well as `make chaos`.
package build

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Env names the environment variable with the folder of the binaries.
const Env = "NEMESH_BIN"

// target is one binary: what to build, with which tags.
type target struct{ name, pkg, tags string }

const (
	module  = "github.com/nemesh/nemesh"
	plugins = "github.com/containernetworking/plugins/plugins"
)

var targets = []target{
	{"overlayd", module + "/overlay/cmd/overlayd", "grpcnotrace"},
	{"overlay-cni", module + "/overlay/cmd/overlay-cni", ""},
	{"overlayd-defects", module + "/overlay/cmd/overlayd", "grpcnotrace,defects"},
	{"overlay-cni-defects", module + "/overlay/cmd/overlay-cni", "defects"},
	{"bridge", plugins + "/main/bridge", ""},
	{"host-local", plugins + "/ipam/host-local", ""},
}

// Bin returns the folder of the binaries. It is the one that NEMESH_BIN names; without that, bin/ of the
// repository, built anew by the go command, which does nothing where nothing has changed. It must be called
// outside the sandbox, where the go command has a network.
func Bin() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make room for the binaries: %w", err)
	}
	for _, t := range targets {
		if err := t.build(root, dir); err != nil {
			return "", err
		}
	}
	return dir, os.Setenv(Env, dir)
}

// build builds one binary beside its place and moves it there, so that one that is running is not touched
// and two builds at once do not mix.
func (t target) build(root, dir string) error {
	temp, err := os.CreateTemp(dir, "."+t.name+"-*")
	if err != nil {
		return fmt.Errorf("build %s: %w", t.name, err)
	}
	defer os.Remove(temp.Name())
	if err := temp.Close(); err != nil {
		return fmt.Errorf("build %s: %w", t.name, err)
	}
	cmd := exec.Command("go", "build", "-tags", t.tags, "-o", temp.Name(), t.pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // static, as the Makefile has them
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", t.name, err, out)
	}
	return errors.Join(os.Chmod(temp.Name(), 0o755), os.Rename(temp.Name(), filepath.Join(dir, t.name)))
}

// root finds the repository from the working directory.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf(
				"there is no go.mod above the working directory: run this inside the repository, or "+
					"set %s to a folder with the binaries",
				Env,
			)
		}
		dir = parent
	}
}
