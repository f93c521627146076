package sandbox

// One binary plays several parts: the sandbox's init, an etcd member, the suite itself. A part is registered
// under a name from a package-level variable or an init function, and the binary starts itself again with
// that name as argv[0]. No second binary has to be built or found, so a suite compiled with `go test -c`
// carries its whole world with it.

import (
	"fmt"
	"os"
	"os/exec"
)

var parts = map[string]func() int{}

// RegisterPart makes fn the part called name. The value fn returns is the exit code. A name taken twice is a
// programming error and panics at start.
func RegisterPart(name string, fn func() int) {
	if _, taken := parts[name]; taken {
		panic(fmt.Sprintf("sandbox: part %q is registered twice", name))
	}
	parts[name] = fn
}

// DispatchPart runs the part named by argv[0] and exits with its code; in a process started in the ordinary way
// it returns. It must be the first call of main or TestMain.
func DispatchPart() {
	if fn, ok := parts[os.Args[0]]; ok {
		os.Exit(fn())
	}
}

// PartCommand prepares this binary to be started as the part called name.
func PartCommand(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = name
	return cmd
}
