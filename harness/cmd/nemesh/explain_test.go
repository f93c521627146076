package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const traces = "../../../fixtures/traces/flannel-636-"

// ran is what a command printed, and its exit code.
func ran(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := explainCommand()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	var exit exitError
	switch {
	case errors.As(err, &exit):
		code = int(exit)
	case err != nil:
		// As main does it.
		code = exitUsage
		errs.WriteString(err.Error())
	}
	return out.String(), errs.String(), code
}

func TestExplain(t *testing.T) {
	node01, node04 := traces+"pod-to-pod-node01.log", traces+"pod-to-pod-node04.log"
	raw, err := os.ReadFile(node04)
	if err != nil {
		t.Fatal(err)
	}
	const lost = "its reply was routed from cni0 to flannel.1 on node04 and never seen on node01; 6.0 s later"
	stdout, stderr, code := ran(t, "", node01, node04)
	if code != exitPassed || stderr != "" || !strings.Contains(stdout, lost) {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if out, _, code := ran(t, string(raw), "-", node01); code != exitPassed || out != stdout {
		t.Errorf("by standard input: exit %d\n%s", code, out)
	}
	if out, _, code := ran(t, "", "here="+node01, "there="+node04); code != exitPassed ||
		!strings.Contains(out, "flannel.1 on there and never seen on here") {
		t.Errorf("with names: exit %d\n%s", code, out)
	}
	// What can be read is explained, and what cannot is said.
	out, stderr, code := ran(t, "", node01, "no-such.log", node04)
	if code != exitUsage || out != stdout || !strings.Contains(stderr, "no-such.log") {
		t.Errorf("with a missing file: exit %d\n%s%s", code, out, stderr)
	}
}

func TestExplainRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"nothing", "explain needs a file", nil},
		{"missing", "no such file", []string{filepath.Join(dir, "missing.log")}},
		{"directory", "is a directory: name the files in it", []string{dir}},
		{"empty", "is empty", []string{write("empty", "")}},
		{"prose", "holds no trace (1 lines read)", []string{write("prose", "it does not work\n")}},
		{"junk", "is neither text nor a pcap", []string{write("junk", "\x00\x01\x02\x03\xff")}},
		{"listing", "no packet to follow", []string{write("neigh", "10.0.0.1 dev eth0 FAILED\n")}},
		{"stdin", "standard input is empty", []string{"-"}},
		{"most", "--most -1", []string{"--most", "-1", traces + "pod-to-pod-node01.log"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := ran(t, "", tc.args...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit %d, want %q in\n%s%s", code, tc.want, stderr, stdout)
			}
		})
	}
}
