package sandbox

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDiagnoseNamesTheSetting(t *testing.T) {
	for key, value := range map[string]string{
		"kernel.apparmor_restrict_unprivileged_userns": "1",
		"user.max_user_namespaces":                     "0",
		"kernel.unprivileged_userns_clone":             "0",
	} {
		_, remedy := diagnose(func(k string) (string, bool) { return value, k == key })
		if !strings.Contains(remedy, "sysctl -w "+key+"=") {
			t.Errorf("%s=%s: %q", key, value, remedy)
		}
	}
	if _, remedy := diagnose(
		func(string) (string, bool) { return "", false },
	); !strings.Contains(
		remedy,
		"seccomp",
	) {
		t.Errorf("nothing set: %q", remedy)
	}
}

func TestOtherErrorsAreNotCalledRefusals(t *testing.T) {
	if err := refused(unix.ENOMEM); strings.Contains(err.Error(), "without root") {
		t.Error(err)
	}
}

func TestParallelHost(t *testing.T) {
	for args, want := range map[string]string{
		"--ginkgo.parallel.host=http://127.0.0.1:4711": "127.0.0.1:4711",
		"-ginkgo.parallel.host=127.0.0.1:4711":         "127.0.0.1:4711",
		"--ginkgo.parallel.host=":                      "",
		"-test.v":                                      "",
	} {
		if got, _ := parallelHost([]string{"-x", args}); got != want {
			t.Errorf("%s: %q", args, got)
		}
	}
}
