package sandbox

// One binary plays several parts: the sandbox's init, an etcd member, the suite itself. A package-level
// variable or an init function registers a part under a name. The binary starts itself again with that name
// as argv[0]. So no second binary has to be built or found, and a suite compiled with `go test -c` is
// complete.

import (
	"fmt"
	"os"
	"os/exec"
)

var parts = map[string]func() int{}

// RegisterPart registers fn as the part called name. fn returns the exit code. It panics when the name is
// taken.
func RegisterPart(name string, fn func() int) {
	if _, taken := parts[name]; taken {
		panic(fmt.Sprintf("sandbox: part %q is registered twice", name))
	}
	parts[name] = fn
}

// DispatchPart runs the part named by argv[0] and exits with its code. It returns when argv[0] names no
// part. It must be the first call of main or TestMain.
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
