// Package reexec lets one binary play several parts: the sandbox's init, an etcd member, the suite itself.
//
// A part is registered under a name from a package-level variable or an init function, and the binary
// starts itself again with that name as argv[0]. No second binary has to be built, found or kept in step,
// so a suite compiled with `go test -c` carries its whole world with it.
package reexec

import (
	"fmt"
	"os"
	"os/exec"
)

var parts = map[string]func() int{}

// Register makes fn the part called name. The value fn returns is the exit code. A name taken twice is a
// programming error and panics at start.
func Register(name string, fn func() int) {
	if _, taken := parts[name]; taken {
		panic(fmt.Sprintf("reexec: part %q is registered twice", name))
	}
	parts[name] = fn
}

// Dispatch runs the part named by argv[0] and exits with its code; in a process started in the ordinary way
// it returns. It must be the first call of main or TestMain.
func Dispatch() {
	if fn, ok := parts[os.Args[0]]; ok {
		os.Exit(fn())
	}
}

// Command prepares this binary to be started as the part called name.
func Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = name
	return cmd
}
