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

// kinds are those of the catalogue of a record.
var kinds = []record.FaultKind{
	{ID: "etcd-stop", About: "etcd ends", Component: "etcd", Promise: "no packet lost; agents wait"},
	{ID: "etcd-kill", About: "etcd is killed", Component: "etcd", Promise: "no packet lost; agents wait"},
	{ID: "agent-kill", About: "an agent is killed", Component: "agent", Promise: "nothing changes"},
	{ID: "device-down", About: "the device is brought down", Component: "kernel", Promise: "repaired"},
	{ID: "add-storm", About: "many pods at once", Component: "CNI", Promise: "every pod works"},
}

// broke is a verdict with faults that were injected, by id and name.
func broke(v record.Verdict, faults ...string) record.Verdict {
	for i := 0; i < len(faults); i += 2 {
		in := record.Injection{Cluster: "1", N: i + 1, ID: faults[i], Name: faults[i+1], Component: "kernel"}
		v.Injections = append(v.Injections, in)
		v.Broke = append(v.Broke, in.Name)
	}
	return v
}

const second = 1e9

// measurements are the same scenarios with and without what newer records have.
func measurements() []record.Event {
	return []record.Event{
		ended("alone", broke(record.Verdict{State: record.Passed, Sent: 1000}, "etcd-stop", "etcd stopped")),
		ended("also alone", broke(record.Verdict{
			State: record.Failed,
			Sent:  500, Lost: 20, LongestOutage: 2 * second, Healed: true, Recovery: second / 2,
		},
			"etcd-stop", "etcd stopped", "etcd-stop", "etcd stopped")),
		ended("with others", broke(record.Verdict{
			State: record.Passed, Sent: 700, Lost: 7,
			LongestOutage: second / 10,
		}, "etcd-stop", "etcd stopped", "agent-kill", "agent on node04 killed")),
		ended("never well again", broke(record.Verdict{
			State: record.Failed,
			Sent:  10, Lost: 9, LongestOutage: second, Healed: true, Recovery: -1,
		},
			"device-down", "device down on node02")),
		ended("by hand", record.Verdict{State: record.Passed, Labels: []string{"fault:add-storm", "kind:cni"}}),
		ended("of its own", broke(record.Verdict{State: record.Passed, Sent: 1},
			record.FaultCustom, "rust | dust on node01")),
		ended("with an id of its own", broke(record.Verdict{State: record.Passed, Sent: 2},
			"toy-stop", "the toy on node01 stopped")),
		ended("skipped", broke(record.Verdict{State: record.Skipped, Sent: 1}, "etcd-kill", "etcd killed")),
		ended("not proven", broke(record.Verdict{State: record.Unproven, Sent: 1}, "etcd-kill", "etcd killed")),
		ended("defect", broke(record.Verdict{State: record.Passed, Sent: 1, Lost: 1},
			"etcd-stop", "etcd stopped")),
	}
}

func TestBehaviour(t *testing.T) {
	o := &record.Outcome{}
	o.Add(record.Event{Kind: record.KindRun, Run: &record.Run{Agent: "overlayd", AgentVersion: "v1"}})
	for range 2 { // as of two processes
		o.Add(record.Event{Kind: record.KindCatalogue, Catalogue: kinds})
	}
	o.Add(record.Event{Kind: record.KindFault, Fault: &record.Fault{
		Name: "the toy on node02 stopped", N: 1,
		ID: "toy-stop", Component: "toy", Promise: "the toy is missed",
	}})
	o.Add(record.Event{Kind: record.KindWorld, Scenario: "defect", World: &record.World{
		Agent: "overlayd with rust", Driver: "overlayd", Defects: []string{"rust"},
	}})
	o.Add(record.Event{Kind: record.KindWorld, Scenario: "alone", World: &record.World{
		Agent: "another that counts", Driver: "another that counts",
	}})
	for _, e := range measurements() {
		o.Add(e)
	}
	got := text.Behaviour(o)
	golden(t, "behaviour.md", got)
	for _, want := range []string{
		// The defect and what came with others do not count.
		"| etcd | etcd-stop | no packet lost; agents wait | 1 of 2 passed | 20 / 1500 | 2.00 s | 500 ms |  |",
		"| agent | agent-kill | nothing changes | 1 of 1 passed | 7 / 700 | 100 ms |  | etcd-stop |",
		"| 9 / 10 | 1.00 s | none |",
		"| CNI | add-storm | every pod works | 1 of 1 passed | no mesh |",
		`| kernel | rust \| dust on node01 |  |`,
		"| kernel | toy-stop | the toy is missed | 1 of 1 passed | 0 / 2 |",
		"1 of the 5 faults of the catalogue were not measured in this run</summary>\n\netcd-kill\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// A record of before ids were recorded has the measurements, and says that it lacks component and promise.
func TestBehaviourOfAnOldRecord(t *testing.T) {
	o := &record.Outcome{}
	o.Add(record.Event{Kind: record.KindRun, Run: &record.Run{Agent: "overlayd", AgentVersion: "v1"}})
	o.Add(record.Event{Kind: record.KindWorld, Scenario: "defect", World: &record.World{
		Agent: "overlayd with rust",
	}})
	for _, e := range measurements() {
		e.Verdict.Injections = nil
		o.Add(e)
	}
	got := text.Behaviour(o)
	for _, want := range []string{
		"| not recorded | etcd stopped | not recorded | 1 of 2 passed | 20 / 1500 | 2.00 s | 500 ms |  |",
		"| not recorded | agent on node04 killed | not recorded | 1 of 1 passed | 7 / 700 | 100 ms |  | " +
			"etcd stopped |",
		"| not recorded | device down on node02 | not recorded | 0 of 1 passed |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "of the catalogue") || strings.Contains(got, "add-storm") {
		t.Errorf("an old record knows a catalogue:\n%s", got)
	}
}
