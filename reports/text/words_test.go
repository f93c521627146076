package text_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

func TestAnnotations(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(text.Annotations(outcome(t))), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	want := "::error file=scenarios/a_test.go,line=20,title=flannel-636 host|pod::node01-pod1 → node02-pod1: " +
		"reply lost " +
		"on node02 at flannel.1: neighbour 172.16.1.0 is INCOMPLETE%0Amake chaos FOCUS='flannel-636 host\\|pod'"
	if lines[0] != want {
		t.Errorf("%s\nwant\n%s", lines[0], want)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 999: "999", 1000: "1\u202f000",
		1234567: "1\u202f234\u202f567",
	} {
		if got := text.Thousands(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}

func TestCounted(t *testing.T) {
	got := text.Counted([]string{
		"etcd stopped", "agent on node02 restarted", "etcd stopped", "link down",
		"agent on node02 restarted", "etcd stopped",
	})
	want := []string{"etcd stopped ×3", "agent on node02 restarted ×2", "link down"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := text.Counted(nil); got != nil {
		t.Errorf("%q of nothing", got)
	}
}

// A pair that did not work again is told of a scenario that did not pass, and of no other.
func TestNotRecovered(t *testing.T) {
	for state, want := range map[string][2]string{
		record.Failed:   {"lost 1 of 9 · longest outage 0 ms · not recovered", "none"},
		record.Unproven: {"lost 1 of 9 · longest outage 0 ms · not recovered", "none"},
		record.Passed:   {"lost 1 of 9 · longest outage 0 ms", ""},
	} {
		v := &record.Verdict{State: state, Sent: 9, Lost: 1, Healed: true, Recovery: -1}
		if felt := text.Felt(v); felt != want[0] {
			t.Errorf("%s: %q, want %q", state, felt, want[0])
		}
		if recovered := text.Recovered(v); recovered != want[1] {
			t.Errorf("%s: recovery %q, want %q", state, recovered, want[1])
		}
	}
}

func TestSlowest(t *testing.T) {
	o := &record.Outcome{}
	ended := func(name, state string, seconds int64) {
		o.Add(record.Event{
			Kind: record.KindVerdict, Scenario: name,
			Verdict: &record.Verdict{State: state, Duration: seconds * 1e9},
		})
	}
	ended("skipped", record.Skipped, 9)
	ended("first", record.Passed, 1)
	if got := text.Slowest(o); got != "" {
		t.Errorf("of one scenario: %q", got)
	}
	ended("second", record.Failed, 3)
	ended("third", record.Passed, 2)
	o.Add(record.Event{Kind: record.KindStep, Scenario: "never ended", Step: "x"})
	if got := text.Slowest(o); got != "slowest: second (3.0 s)\n" {
		t.Errorf("%q", got)
	}
}

func TestAgents(t *testing.T) {
	world := func(s, agent string) record.Event {
		return record.Event{Kind: record.KindWorld, Scenario: s, World: &record.World{Agent: agent}}
	}
	rusty := func(s, driver string) record.Event {
		return record.Event{Kind: record.KindWorld, Scenario: s, World: &record.World{
			Agent: driver + " with rust and dust", Driver: driver, Defects: []string{"rust", "dust"},
		}}
	}
	for want, events := range map[string][]record.Event{
		"":            {world("a", "")},
		"flannel":     {world("a", "flannel")},
		"overlayd v1": {world("a", "overlayd")},
		"overlayd v1; in some scenarios flannel, overlayd with rust": {
			world("a", "overlayd"),
			world("b", "flannel"), world("c", "overlayd with rust"), world("d", "flannel"),
		},
		"overlayd v1 with rust and dust": {rusty("a", "overlayd"), rusty("b", "overlayd")},
		"overlayd v1; in some scenarios overlayd with rust and dust": {
			world("a", "overlayd"),
			rusty("b", "overlayd"),
		},
		"overlayd v1; in some scenarios mine with rust and dust": {rusty("a", "mine")},
		// An old record does not tell defects.
		"overlayd v1; in some scenarios overlayd with rust": {world("a", "overlayd with rust")},
		"overlayd v1; in some scenarios 4 others, such as w": {
			world("a", "w"), world("b", "x"),
			world("c", "y"), world("d", "z"),
		},
	} {
		o := &record.Outcome{}
		if strings.HasPrefix(want, "overlayd") {
			o.Add(record.Event{Kind: record.KindRun, Run: &record.Run{Agent: "overlayd", AgentVersion: "v1"}})
		}
		for _, e := range events {
			o.Add(e)
		}
		if got := text.Agents(o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEnds(t *testing.T) {
	o := &record.Outcome{}
	o.Add(record.Event{At: 1e9, Kind: record.KindRun, Run: &record.Run{}})
	o.Add(record.Event{At: 3e9, Kind: record.KindStep, Scenario: "half done", Step: "x"})
	o.Cut = true
	want := "The record ends 2.00 s after it began, before the run did, in the middle of a line; " +
		"at that time ran: half done."
	if got := text.Ends(o); !strings.HasPrefix(got, want) {
		t.Errorf("%q", got)
	}
	o.Cut = false
	o.Add(record.Event{At: 4e9, Kind: record.KindEnd, End: &record.End{}})
	if got := text.Ends(o); got != "" {
		t.Errorf("a whole record: %q", got)
	}
}

// A summary says of each fault of a failure what it breaks and what was promised.
func TestSummaryHasThePromises(t *testing.T) {
	got := text.Markdown(recorded(t, "faults.jsonl"))
	want := `| fault | component | promised |
|---|---|---|
| etcd-pause | etcd | no packet lost; new pods work; agents wait |
| agent-restart | agent | no packet lost; nothing in the kernel changes |
| resolver stopped | kernel |  |
| packet-loss | node | loses what the cable loses; nothing is torn down |
`
	if !strings.Contains(got, want) {
		t.Errorf("%s\nis not in\n%s", want, got)
	}
}
