package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/reports/record"
)

// outside is a module of its own, with a scenario, a fault, an invariant and an agent of its own.
const outside = "../../../fixtures/outside"

func TestSuiteOfAnotherModule(t *testing.T) {
	t.Parallel()
	reports := t.TempDir()
	code, said := nemesh(t, ".", "run", "--suite", outside, "--reports", reports)
	if code != exitFailed {
		t.Fatalf("exit code %d:\n%s", code, said)
	}
	for _, want := range []string{
		"ok ", "FAIL", "2 passed, 1 failed",
		"route to the pods of 192.168.200.202 deleted on node01", // the fault
		`no route on node01 to 172.16.202.2: it takes "default via 192.168.200.1 dev eth0"`,
		"nemesh run --suite " + outside + " 'pods have a static route again that was deleted'",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in:\n%s", want, said)
		}
	}
	o, err := record.Load(filepath.Join(reports, "latest", "record.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"pods lose nothing while etcd is away":                record.Passed,
		"pods lose nothing while static routes have no agent": record.Passed,
		"pods have a static route again that was deleted":     record.Failed,
	}
	for _, s := range o.Scenarios {
		if s.Verdict == nil || s.Verdict.State != want[s.Name] {
			t.Errorf("%s is %+v, want %q", s.Name, s.Verdict, want[s.Name])
			continue
		}
		if s.Verdict.State == record.Passed {
			checkInvariants(t, s, strings.Contains(s.Name, "static"))
		}
		if !strings.HasPrefix(s.Verdict.Location, "outside/chaos_test.go:") {
			t.Errorf("%s is at %s", s.Name, s.Verdict.Location)
		}
	}
	if len(o.Scenarios) != len(want) {
		t.Errorf("%d scenarios, want %d", len(o.Scenarios), len(want))
	}
}

// checkInvariants looks at how a scenario that passed was judged: by the invariant of the module, and by
// those of which its agent can be asked.
func checkInvariants(t *testing.T, s *record.Scenario, static bool) {
	t.Helper()
	for id, asked := range map[string]bool{
		"nodes-forward": true, "no-veth-without-pod": true, "agent-alive": true, "vtep-mac-agrees": !static,
		"kernel-holds-what-is-explained": !static, "agent-makes-progress": !static, "one-lease-per-node": !static,
	} {
		i := slices.IndexFunc(s.Invariants, func(v record.Invariant) bool { return v.Name == id })
		if i < 0 {
			t.Errorf("%s: %s is not in the record", s.Name, id)
			continue
		}
		v := s.Invariants[i]
		if v.OK != asked || v.Waived == asked ||
			(!asked && !strings.Contains(v.Details[0], "static-routes lacks")) {
			t.Errorf("%s: %+v", s.Name, v)
		}
	}
}

func TestAgentOfAnotherModule(t *testing.T) {
	t.Parallel()
	bin, err := build.ForRun(outside)
	if err != nil {
		t.Fatal(err)
	}
	code, said := nemesh(t, ".", "run", "--suite", outside, "--bin", bin, "--reports", t.TempDir(),
		"--agent", "static-routes", "etcd is away")
	for _, want := range []string{"agent: static-routes\n", "1 passed, 0 failed"} {
		if code != exitPassed || !strings.Contains(said, want) {
			t.Errorf("exit code %d, want %q in:\n%s", code, want, said)
		}
	}
	code, said = nemesh(t, ".", "run", "--suite", outside, "--bin", bin, "--agent", "statisch")
	if want := "or a name: ours, static-routes"; code != exitUsage || !strings.Contains(said, want) {
		t.Errorf("exit code %d, want %q in:\n%s", code, want, said)
	}
	for kind, wanted := range map[string][]string{
		"invariants": {"nodes-forward", "Nodes forward.", "no-panic"},
		"faults":     {"static-route-delete", "a static route is deleted", "etcd-stop"},
	} {
		code, said = nemesh(t, ".", "list", kind, "--suite", outside, "--bin", bin)
		for _, want := range wanted {
			if code != exitPassed || !strings.Contains(said, want) {
				t.Errorf("exit code %d, want %q in:\n%s", code, want, said)
			}
		}
	}
}
