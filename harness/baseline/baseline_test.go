package baseline_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/baseline"
	"github.com/nemesh/nemesh/reports/record"
)

// outcome builds a run from verdicts by scenario; an empty one did not end.
func outcome(verdicts map[string]string) *record.Outcome {
	o := &record.Outcome{}
	for name, state := range verdicts {
		if state == "" {
			o.Add(record.Event{Kind: record.KindStep, Scenario: name, Step: "began"})
			continue
		}
		o.Add(record.Event{Kind: record.KindVerdict, Scenario: name, Verdict: &record.Verdict{
			State: state, Message: "\n  boom: " + name + "\nmore", Labels: []string{"kind:lease", "issue:flannel-1"},
		}})
	}
	return o
}

func TestCompare(t *testing.T) {
	b := baseline.Baseline{Agent: "a", Version: "1", Failures: []baseline.Failure{
		{Scenario: "known", Issue: "x#1", Symptom: "s"},
		{Scenario: "unproven", Verdict: record.Unproven, Issue: "x#2", Symptom: "s"},
		{Scenario: "race", Sometimes: true, Issue: "x#3", Symptom: "s"},
	}}
	for name, c := range map[string]struct {
		run                                 map[string]string
		expected, failures, passes, missing []string
		exit                                int
	}{
		"as expected": {
			map[string]string{"known": record.Failed, "unproven": record.Unproven, "race": record.Passed,
				"new": record.Passed},
			[]string{"known", "unproven"}, nil, nil, nil, 0,
		},
		"a race that fails": {
			map[string]string{"race": record.Failed}, []string{"race"}, nil, nil, []string{"known", "unproven"}, 0,
		},
		"unexpected failure": {
			map[string]string{"known": record.Failed, "new": record.Failed},
			[]string{"known"}, []string{"new"}, nil, []string{"unproven", "race"}, 1,
		},
		"unexpected pass": {
			map[string]string{"known": record.Passed}, nil, nil, []string{"known"}, []string{"unproven", "race"}, 1,
		},
		"fails where it could not be proved": {
			map[string]string{"unproven": record.Failed},
			nil, []string{"unproven"}, nil, []string{"known", "race"}, 1,
		},
		"not proven any more": {
			map[string]string{"known": record.Unproven, "new": record.Passed},
			nil, []string{"known"}, nil, []string{"unproven", "race"}, 2,
		},
		"skipped is not compared": {
			map[string]string{"known": record.Skipped, "new": record.Passed},
			nil, nil, nil, []string{"known", "unproven", "race"}, 0,
		},
		"not finished": {
			map[string]string{"known": "", "new": record.Passed},
			nil, nil, nil, []string{"known", "unproven", "race"}, 2,
		},
		"nothing ran": {map[string]string{}, nil, nil, nil, []string{"known", "unproven", "race"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := baseline.Compare(b, outcome(c.run))
			check := func(what string, got, want []string) {
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			check("expected", scenarios(got.Expected), c.expected)
			check("not run", scenarios(got.NotRun), c.missing)
			check("failures", changes(got.Failures), c.failures)
			check("passes", changes(got.Passes), c.passes)
			if got.Exit() != c.exit {
				t.Errorf("exit code %d, want %d", got.Exit(), c.exit)
			}
			for _, s := range slices.Concat(c.expected, c.failures, c.passes) {
				if !strings.Contains(got.Text(b), s) {
					t.Errorf("%s is not told:\n%s", s, got.Text(b))
				}
			}
		})
	}
}

func scenarios(all []baseline.Failure) (names []string) {
	for _, f := range all {
		names = append(names, f.Scenario)
	}
	return names
}

func changes(all []baseline.Change) (names []string) {
	for _, c := range all {
		names = append(names, c.Scenario)
	}
	return names
}

func TestFromKeepsWhatPeopleWrote(t *testing.T) {
	old := baseline.Baseline{Failures: []baseline.Failure{
		{Scenario: "same", Issue: "i", Symptom: "in good words"},
		{Scenario: "fixed", Issue: "i", Symptom: "s"},
		{Scenario: "elsewhere", Issue: "i", Symptom: "not in this run"},
		{Scenario: "race", Sometimes: true, Issue: "i", Symptom: "s"},
	}}
	got := baseline.From(outcome(map[string]string{
		"same":    record.Failed,
		"fixed":   record.Passed,
		"new":     record.Failed,
		"fuzzy":   record.Unproven,
		"race":    record.Passed,
		"skipped": record.Skipped,
	}), old, "agent", "v1")
	if want := []string{
		"elsewhere",
		"fuzzy",
		"new",
		"race",
		"same",
	}; !slices.Equal(
		scenarios(got.Failures),
		want,
	) {
		t.Fatalf("%q, want %q", scenarios(got.Failures), want)
	}
	if f := got.Failures[4]; f.Symptom != "in good words" {
		t.Errorf("overwritten: %+v", f)
	}
	if f := got.Failures[2]; f.Symptom != "boom: new" || f.Issue != "flannel-1" || f.Verdict != "" {
		t.Errorf("%+v", f)
	}
	if f := got.Failures[1]; f.Verdict != record.Unproven {
		t.Errorf("%+v", f)
	}
	raw, err := got.YAML()
	if err != nil {
		t.Fatal(err)
	}
	back, err := baseline.Parse(raw)
	if err != nil || !slices.Equal(back.Failures, got.Failures) || back.Agent != "agent" ||
		back.Version != "v1" {
		t.Errorf("%+v, %v from\n%s", back, err, raw)
	}
}

func TestBaselinesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "no baseline",
		"agent: a\nversion: v\ncolour: red":    "colour",
		"agent: a":                             "agent and version are needed",
		"agent: a\nversion: v\nfailures: [{}]": "failure 1 needs a scenario and a symptom",
		"agent: a\nversion: v\nfailures: [{scenario: s, symptom: y, verdict: no}]":               `verdict "no"`,
		"agent: a\nversion: v\nfailures: [{scenario: s, symptom: y}, {scenario: s, symptom: y}]": "there twice",
	} {
		if _, err := baseline.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q in: %v", text, want, err)
		}
	}
}

// TestShippedBaselines: each can be read and is found under the agent and version that it is of.
func TestShippedBaselines(t *testing.T) {
	dir := filepath.Join("..", "..", "fixtures", "baselines")
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no baselines in %s: %v", dir, err)
	}
	for _, p := range paths {
		b, err := baseline.Read(p)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, found, err := baseline.Find(dir, b.Agent, b.Version); !found || err != nil {
			t.Errorf("%s is not called %s: %v", p, baseline.FileName(b.Agent, b.Version), err)
		}
	}
	if _, found, err := baseline.Find(dir, "nobody", "v0"); found || err != nil {
		t.Errorf("found %t, %v", found, err)
	}
	if err := os.WriteFile(
		filepath.Join(t.TempDir(), baseline.FileName("a/b c", "v1")),
		nil,
		0o644,
	); err != nil {
		t.Errorf("a name that is no file's: %v", err)
	}
}
