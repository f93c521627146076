package text_test

import (
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// ended is the verdict of a scenario as an event.
func ended(name string, v record.Verdict) record.Event {
	return record.Event{Kind: record.KindVerdict, Scenario: name, Verdict: &v}
}

func TestBehaviour(t *testing.T) {
	const second = 1e9
	o := &record.Outcome{}
	for _, e := range []record.Event{
		{Kind: record.KindRun, Run: &record.Run{Agent: "overlayd", AgentVersion: "v1"}},
		ended("alone", record.Verdict{State: record.Passed, Broke: []string{"etcd stopped"}, Sent: 1000}),
		ended("also alone", record.Verdict{State: record.Failed, Broke: []string{"etcd stopped", "etcd stopped"},
			Sent: 500, Lost: 20, LongestOutage: 2 * second, Healed: true, Recovery: second / 2}),
		ended("with others", record.Verdict{State: record.Passed,
			Broke: []string{"etcd stopped", "agent on node04 killed"}, Sent: 700, Lost: 7,
			LongestOutage: second / 10}),
		ended("never well again", record.Verdict{State: record.Failed, Broke: []string{"device down on node02"},
			Sent: 10, Lost: 9, LongestOutage: second, Healed: true, Recovery: -1}),
		ended("by hand", record.Verdict{State: record.Passed, Labels: []string{"fault:add-storm", "kind:cni"}}),
		ended("of its own", record.Verdict{State: record.Passed, Broke: []string{"rust | dust on node01"},
			Sent: 1}),
		ended("skipped", record.Verdict{State: record.Skipped, Broke: []string{"etcd killed"}, Sent: 1}),
		ended("not proven", record.Verdict{State: record.Unproven, Broke: []string{"etcd paused"}, Sent: 1}),
		{Kind: record.KindWorld, Scenario: "defect", World: &record.World{Agent: "overlayd with rust"}},
		ended("defect", record.Verdict{State: record.Passed, Broke: []string{"etcd stopped"}, Sent: 1, Lost: 1}),
	} {
		o.Add(e)
	}
	got := text.Behaviour(o)
	golden(t, "behaviour.md", got)
	for _, want := range []string{
		"| 1 of 2 passed | 20 / 1500 | 2.00 s | 500 ms |  |", // the defect and what came with others do not count
		"| 1 of 1 passed | 7 / 700 | 100 ms |  | etcd-stop |",
		"| 9 / 10 | 1.00 s | none |",
		"| CNI | add-storm | every pod works, no address twice | 1 of 1 passed | no mesh |",
		`| other | rust \| dust on node01 |`,
		"etcd-kill, etcd-pause, etcd-wipe",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestFaultID(t *testing.T) {
	for name, want := range map[string]string{
		"etcd stopped":                                   "etcd-stop",
		"agent on node04 killed":                         "agent-kill",
		"lease key of node01 deleted":                    "lease-delete",
		"key config deleted":                             "key-delete",
		"/run/flannel/subnet.env deleted on node01":      "file-delete",
		"device deleted on node01":                       "device-delete",
		"lease of node02 expired under a paused agent":   "lease-expire",
		"permission to write removed at etcd":            "etcd-write-removed",
		"neighbour entries aged on node01, node02":       "neighbours-age",
		"something that nobody has put into a catalogue": "",
	} {
		if got := text.FaultID(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
