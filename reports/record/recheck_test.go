package record_test

import (
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
)

// sound is a run of one scenario with an outage of 2 s that ends 1 s after the heal.
func sound() []record.Event {
	outage := record.Outage{Start: 3e9, Length: 2e9, Lost: 200, Ended: true}
	events := []record.Event{
		{At: 1e9, Kind: record.KindRun, Run: &record.Run{Version: record.Version}},
		{At: 2e9, Kind: record.KindWorld, World: &record.World{}},
		{
			At:    3e9,
			Kind:  record.KindFault,
			Fault: &record.Fault{Name: "etcd stopped", Phase: record.FaultInjecting},
		},
		{At: 3e9, Kind: record.KindFault, Fault: &record.Fault{Name: "etcd stopped", Phase: record.FaultProved}},
		{At: 4e9, Kind: record.KindFault, Fault: &record.Fault{Name: "etcd stopped", Phase: record.FaultHealed}},
		{At: 5e9, Kind: record.KindReach, Reach: []record.Reach{{From: "a", To: "b", Want: true, Got: true}}},
		{
			At:        5e9,
			Kind:      record.KindInvariant,
			Invariant: &record.Invariant{Name: "each lease has its route", OK: true},
		},
		{At: 6e9, Kind: record.KindSeries, Series: []record.Series{{
			From: "a", To: "b", Start: 2e9,
			Buckets: []record.Bucket{{0, 4000, 400, 200, 1, 2, 3}},
		}}},
		{At: 7e9, Kind: record.KindProbe, Probe: &record.Probe{Pairs: []record.Pair{
			{From: "a", To: "b", Sent: 400, Lost: 200, Outages: []record.Outage{outage}},
		}}},
		{At: 8e9, Kind: record.KindVerdict, Verdict: &record.Verdict{
			State: record.Passed, Sent: 400, Lost: 200,
			LongestOutage: 2e9, Recovery: 1e9, Healed: true, Clusters: []string{"c"},
		}},
	}
	for i := range events[1:] {
		events[i+1].Scenario, events[i+1].Cluster = "s", "c"
	}
	return append(events, record.Event{At: 9e9, Kind: record.KindEnd, End: &record.End{}})
}

func TestRecheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]record.Event)
		want   string
	}{
		"sound": {func([]record.Event) {}, ""},
		"not proven": {
			func(e []record.Event) { e[3].Fault.Phase = record.FaultUnproved },
			`"etcd stopped" was not proven`,
		},
		"invariant": {
			func(e []record.Event) { e[6].Invariant.OK = false },
			`"each lease has its route" did not hold`,
		},
		"waived":    {func(e []record.Event) { e[6].Invariant.OK, e[6].Invariant.Waived = false, true }, ""},
		"reach":     {func(e []record.Event) { e[5].Reach[0].Got = false }, "a → b wrong"},
		"diagnosis": {func(e []record.Event) { e[5].Reach[0].Got, e[5].When = false, record.AtFail }, ""},
		"lost less": {func(e []record.Event) { e[9].Verdict.Lost = 100 }, "counts 100 of 400 echoes lost"},
		"lost more": {func(e []record.Event) { e[9].Verdict.Lost = 300 }, "says 300 of 400 echoes lost"},
		"recovery": {
			func(e []record.Event) { e[9].Verdict.Recovery = 5e8 },
			"recovered after 500ms; by its outages that is 1s",
		},
		"no recovery": {func(e []record.Event) { e[8].Probe.Pairs[0].Outages[0].Ended = false }, "that is never"},
		"series": {
			func(e []record.Event) { e[7].Series[0].Buckets[0][record.BucketLost] = 7 },
			"has 7 of 400 echoes lost",
		},
		"no reason": {
			func(e []record.Event) { e[9].Verdict.State, e[10].End.Exit = record.Failed, 1 },
			"does not say why",
		},
		"exit code": {func(e []record.Event) {
			e[9].Verdict.State, e[9].Verdict.Message = record.Failed, "it lost packets"
		}, "exit code 0 and its verdicts ask for 1"},
	} {
		events, o := sound(), &record.Outcome{}
		c.change(events)
		for _, e := range events {
			o.Add(e)
		}
		wrong := strings.Join(append(o.Recheck(), o.Scenarios[0].Recheck()...), "; ")
		if (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: %q, want %q", name, wrong, c.want)
		}
	}
}

func TestSentence(t *testing.T) {
	s := &record.Scenario{
		Verdict: &record.Verdict{
			State:   record.Failed,
			Message: "Expected\n    \x1b[31m<int>: 3\x1b[0m\nto be zero",
		},
	}
	steps := []struct {
		add  func()
		want string
	}{
		{func() {}, "expected 3 to be zero"},
		{func() {
			s.Invariants = []record.Invariant{
				{Name: "no address twice", Details: []string{"172.16.1.2 on node01 and node02"}},
			}
		}, "no address twice does not hold: 172.16.1.2 on node01 and node02"},
		{
			func() { s.Traces = []record.Trace{{From: "a", To: "b", Sentence: "no route on node01"}} },
			"a → b: no route on node01",
		},
		{func() { s.Verdict.State = record.Passed }, ""},
		{func() { s.Verdict = nil }, "the scenario did not end"},
	}
	for _, step := range steps {
		if step.add(); s.Sentence() != step.want {
			t.Errorf("%q, want %q", s.Sentence(), step.want)
		}
	}
}

// Scenarios that share a cluster each count their own time; what none counts is a contradiction.
func TestRecheckOfASharedCluster(t *testing.T) {
	for first, want := range map[uint64]string{
		50: "",
		49: "whose scenarios count 199 of 400 echoes lost together",
	} {
		events := sound()
		events[9].Verdict.Sent, events[9].Verdict.Lost = 300, 150
		o := &record.Outcome{}
		for i, e := range events {
			if i == 8 {
				o.Add(record.Event{At: 6e9, Kind: record.KindVerdict, Scenario: "before", Verdict: &record.Verdict{
					State: record.Passed, Sent: 100, Lost: first, LongestOutage: 1e9, Clusters: []string{"c"},
				}})
			}
			o.Add(e)
		}
		var wrong []string
		for _, s := range o.Scenarios {
			wrong = append(wrong, s.Recheck()...)
		}
		if got := strings.Join(wrong, "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%d: %q, want %q", first, got, want)
		}
	}
}
