package build

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Suite compiles the tests in a folder, by the go command and with what it has cached, and returns the
// path of the binary. It must be called outside the sandbox.
func Suite(dir string) (string, error) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("find the suite: %w (a first one is written by: nemesh new scenario NAME)", err)
	case !info.IsDir():
		return "", fmt.Errorf("the suite %s is a file: give the folder that it is in", dir)
	}
	path, err := suitePath(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make room for the compiled suite: %w", err)
	}
	return path, replace(path, func(temp string) error {
		said, err := run(dir, nil, "test", "-c", "-o", temp, ".")
		if err != nil {
			return fmt.Errorf("compile the suite in %s: %w", dir, err)
		}
		if said != "" { // "no test files", which is no error for the go command
			return fmt.Errorf("compile the suite in %s: %s: a first scenario is written by: nemesh new scenario NAME",
				dir, said)
		}
		return nil
	})
}

// suitePath is where the compiled suite of a folder is kept.
func suitePath(dir string) (string, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the suite: %w", err)
	}
	cache, err := Cache()
	sum := sha256.Sum256([]byte(full))
	return filepath.Join(cache, "suites", fmt.Sprintf("%x", sum[:8]), filepath.Base(full)+".test"), err
}

// replace has write make a file beside its place and moves it there, so that one that is running is not
// touched and two at once do not mix. What is there already is copied first: the go command links again only
// if it is of other sources.
func replace(path string, write func(temp string) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("make room for %s: %w", path, err)
	}
	defer os.Remove(temp.Name())
	var copied error
	if old, err := os.Open(path); err == nil {
		_, copied = temp.ReadFrom(old)
		copied = errors.Join(copied, old.Close())
	}
	if err := errors.Join(copied, temp.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", path, err)
	}
	if err := write(temp.Name()); err != nil {
		return err
	}
	return errors.Join(os.Chmod(temp.Name(), 0o755), os.Rename(temp.Name(), path))
}

// Complete adds to the go.mod and go.sum of a new module what its tests need, from the module cache where it
// is there.
func Complete(dir string) error {
	if _, err := run(dir, nil, "list", "-mod=mod", "-deps", "-test", "."); err != nil {
		return fmt.Errorf("complete the module in %s: %w\ntype there: go mod tidy", dir, err)
	}
	return nil
}
