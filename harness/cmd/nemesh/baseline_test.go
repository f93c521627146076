package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
)

func TestBaselineOfAWholeRunOnly(t *testing.T) {
	failed := record.Verdict{State: record.Failed, Message: "lost"}
	interrupted := record.Verdict{State: record.Unproven, Interrupted: true}
	ended := record.Event{Kind: record.KindEnd, End: &record.End{}}
	for want, events := range map[string][]record.Event{
		"":                 {verdict("a", failed), ended},
		"was interrupted":  {verdict("a", failed), verdict("b", interrupted), ended},
		"did not end":      {verdict("a", failed)},
		"no scenario was ": {ended},
	} {
		o := baselineOptions{dir: filepath.Join(t.TempDir(), "baselines")}
		run := t.TempDir()
		rec, err := record.Open(filepath.Join(run, "record.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		rec.Write(record.Event{Kind: record.KindRun,
			Run: &record.Run{Version: record.Version, Agent: "flanneld", AgentVersion: "v1"}})
		for _, e := range events {
			rec.Write(e)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		err = o.write(run)
		written, _ := os.ReadDir(o.dir)
		switch {
		case want == "" && (err != nil || len(written) != 1):
			t.Errorf("a whole run: %v, %d files", err, len(written))
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(written) != 0):
			t.Errorf("want %q, got %v, %d files", want, err, len(written))
		}
	}
}

func verdict(scenario string, v record.Verdict) record.Event {
	return record.Event{Kind: record.KindVerdict, Scenario: scenario, Verdict: &v}
}
