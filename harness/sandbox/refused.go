package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// switches are the kernel settings by which ordinary users may not make user namespaces, each with the value
// that forbids it and the value that allows it.
var switches = []struct{ key, refuses, allows, reason string }{
	{
		"kernel.apparmor_restrict_unprivileged_userns", "1", "0",
		"AppArmor keeps unprivileged programs from using user namespaces (the default of Ubuntu 24.04)",
	},
	{"user.max_user_namespaces", "0", "15000", "the kernel allows no user namespace at all"},
	{"kernel.unprivileged_userns_clone", "0", "1", "this kernel gives user namespaces to root only"},
}

// refused explains an error of the kernel when it will not build the sandbox, and names the two ways on.
func refused(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) &&
		!errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("build the sandbox: %w", err)
	}
	reason, sysctl := diagnose(readSysctl)
	return fmt.Errorf("this machine does not allow a sandbox without root: %s (%w)\n"+
		"  Two ways on:\n"+
		"    run the same command as root, with sudo in front of it\n"+
		"    %s", reason, err, sysctl)
}

// diagnose finds the setting that forbids user namespaces, and the command that allows them.
func diagnose(read func(key string) (string, bool)) (reason, remedy string) {
	for _, s := range switches {
		if value, ok := read(s.key); ok && value == s.refuses {
			return s.reason, fmt.Sprintf("or allow user namespaces once: sudo sysctl -w %s=%s", s.key, s.allows)
		}
	}
	return "user namespaces are refused, as in many containers",
		"or allow user namespaces: in a container, start it with --privileged or with a seccomp profile that\n" +
			"    permits unshare(2); elsewhere raise the sysctl user.max_user_namespaces"
}

func readSysctl(key string) (string, bool) {
	raw, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(key, ".", "/"))
	return strings.TrimSpace(string(raw)), err == nil
}
