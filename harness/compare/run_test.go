package compare_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/reports/record"
)

// about, verdict and end are the events that a run is made of here.
func about() record.Event {
	return record.Event{
		At: 1, Kind: record.KindRun,
		Run: &record.Run{Version: record.Version, Agent: "flanneld", AgentVersion: "v9"},
	}
}

func verdict(scenario string, v record.Verdict) record.Event {
	return record.Event{At: 2, Kind: record.KindVerdict, Scenario: scenario, Verdict: &v}
}

func end() record.Event { return record.Event{At: 3, Kind: record.KindEnd, End: &record.End{}} }

// run puts events together.
func run(events ...record.Event) compare.Run {
	o := &record.Outcome{}
	for _, e := range events {
		o.Add(e)
	}
	return compare.Of(o, "runs/1")
}

// states is a whole run of scenarios and their states, in no order. One without a state did not end.
func states(by map[string]string) compare.Run {
	events := []record.Event{about()}
	for name, state := range by {
		if state == "" {
			events = append(events, record.Event{At: 2, Kind: record.KindStep, Scenario: name, Step: "began"})
			continue
		}
		events = append(events, verdict(name, record.Verdict{
			State: state, Message: "\n  boom: " + name + "\nmore", Labels: []string{"kind:lease", "issue:flannel-1"},
		}))
	}
	return run(append(events, end())...)
}

// write writes a run into a reports folder.
func write(t *testing.T, reports, name string, cut bool, events ...record.Event) {
	t.Helper()
	path := filepath.Join(reports, "runs", name, "record.jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := record.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		w.Write(e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !cut {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"at":1,"ki`); err != nil {
		t.Fatal(err)
	}
}

func TestRunIsReadFromItsRecord(t *testing.T) {
	reports := t.TempDir()
	failed := record.Verdict{State: record.Failed, Message: "gone"}
	write(t, reports, "1", false, about(), verdict("a", failed), end())
	write(t, reports, "2", true, about(), record.Event{Kind: record.KindStep, Scenario: "b", Step: "began"})
	for name, want := range map[string]compare.Run{
		"1": {Whole: true, Results: []compare.Result{{
			Scenario: "a", Sentence: "gone",
			Verdict: record.Verdict{State: record.Failed},
		}}},
		"2": {Results: []compare.Result{{
			Scenario: "b", Sentence: "the scenario did not end",
			Verdict: record.Verdict{State: compare.Unfinished},
		}}},
	} {
		dir := filepath.Join(reports, "runs", name)
		got, err := compare.Read(dir)
		if err != nil || got.Whole != want.Whole || got.Agent() != "flanneld v9" || len(got.Results) != 1 {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		is, was := got.Results[0], want.Results[0]
		if is.Scenario != was.Scenario || is.State != was.State || is.Sentence != was.Sentence || is.Dir != dir {
			t.Errorf("%s: %+v", name, is)
		}
		if got.Result("stranger").State != "" {
			t.Errorf("%s: a scenario that is not in the run has a state", name)
		}
	}
}
