package build

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Module is the path of the nemesh module.
const Module = "github.com/nemesh/nemesh"

// Source is the nemesh module that a suite is built with.
type Source struct {
	// Dir is the folder of its sources.
	Dir string
	// Version is that of a module in Go's module cache, which never changes; "" for a checkout.
	Version string
}

// Find asks the go command which nemesh module a suite in a folder is built with: the repository itself, a
// checkout that a replace directive or a go.work names, or a version in the module cache.
func Find(dir string) (Source, error) {
	s, err := find(dir)
	if err == nil && s.Dir == "" { // it is required and not there yet
		if _, err = run(dir, nil, "mod", "download", Module); err == nil {
			s, err = find(dir)
		}
	}
	if err != nil {
		return Source{}, fmt.Errorf("find the nemesh module: %w\n%s", err, advice(dir, err))
	}
	return s, nil
}

func find(dir string) (Source, error) {
	// -mod=readonly also looks past a vendor folder, which has only what the suite imports.
	out, err := run(dir, nil, "list", "-mod=readonly", "-m", "-json=Dir,Version,Main,Replace", Module)
	if err != nil {
		return Source{}, err
	}
	var m struct {
		Dir, Version string
		Main         bool
		Replace      *struct{ Version string }
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return Source{}, fmt.Errorf("read what go list says: %w", err)
	}
	switch {
	case m.Main:
		m.Version = ""
	case m.Replace != nil:
		m.Version = m.Replace.Version
	}
	return Source{Dir: m.Dir, Version: m.Version}, nil
}

// advice says what to type when the module is not found.
func advice(dir string, err error) string {
	switch said := err.Error(); {
	case strings.Contains(said, "not a known dependency"):
		return fmt.Sprintf("the module of %s does not require nemesh; type there: go get %s", dir, Module)
	case strings.Contains(said, "go.mod file not found"), strings.Contains(said, "cannot match"):
		return fmt.Sprintf("there is no go.mod at %s or above it; a first suite is written by: "+
			"nemesh new scenario NAME", dir)
	default:
		return fmt.Sprintf("type in %s: go mod download %s, or set %s to a folder with the binaries", dir, Module,
			Env)
	}
}

// Bin is the folder in which the binaries of a source are kept: bin/ of a checkout, and one of its own in
// the user's cache for a version, since the module cache is read-only.
func (s Source) Bin() (string, error) {
	if s.Version == "" {
		if err := unix.Access(s.Dir, unix.W_OK); err != nil {
			return "", fmt.Errorf("the nemesh checkout %s cannot be written to, so its binaries cannot be built "+
				"there: set %s to a folder with the binaries (%w)", s.Dir, Env, err)
		}
		return filepath.Join(s.Dir, "bin"), nil
	}
	cache, err := Cache()
	return filepath.Join(cache, s.Version), err
}

// Cache is nemesh's folder in the user's cache. It must be visible in the sandbox, which has a /run of its
// own.
func Cache() (string, error) {
	cache, err := os.UserCacheDir()
	if err == nil && strings.HasPrefix(cache, "/run/") {
		err = fmt.Errorf("%s is under /run, of which the sandbox has one of its own", cache)
	}
	if err != nil {
		return "", fmt.Errorf("find a folder for what is built: %w: set XDG_CACHE_HOME to another folder", err)
	}
	return filepath.Join(cache, "nemesh"), nil
}
