package compare_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/reports/record"
)

func TestAgainstABaseline(t *testing.T) {
	b := compare.Baseline{Agent: "a", Version: "1", Failures: []compare.Failure{
		{Scenario: "known", Issue: "x#1", Symptom: "s"},
		{Scenario: "unproven", Verdict: record.Unproven, Issue: "x#2", Symptom: "s"},
		{Scenario: "race", Sometimes: true, Issue: "x#3", Symptom: "s"},
	}}
	for name, c := range map[string]struct {
		run                        map[string]string
		expected, failures, passes []string
		exit                       int
	}{
		"as expected": {
			map[string]string{
				"known": record.Failed, "unproven": record.Unproven, "race": record.Passed,
				"new": record.Passed,
			},
			[]string{"known", "unproven"},
			nil, nil, 0,
		},
		"a race that fails":       {map[string]string{"race": record.Failed}, []string{"race"}, nil, nil, 0},
		"a race that is unproven": {map[string]string{"race": record.Unproven}, nil, []string{"race"}, nil, 2},
		"unexpected failure": {
			map[string]string{"known": record.Failed, "new": record.Failed},
			[]string{"known"},
			[]string{"new"},
			nil, 1,
		},
		"unexpected pass": {map[string]string{"known": record.Passed}, nil, nil, []string{"known"}, 1},
		"fails where it could not be proved": {
			map[string]string{"unproven": record.Failed}, nil, []string{"unproven"}, nil, 1,
		},
		"not proven any more": {
			map[string]string{"known": record.Unproven, "new": record.Passed}, nil, []string{"known"}, nil, 2,
		},
		"skipped is not compared": {
			map[string]string{"known": record.Skipped, "new": record.Passed}, nil, nil, nil, 0,
		},
		"not finished": {map[string]string{"known": "", "new": record.Passed}, nil, nil, nil, 2},
		"nothing ran":  {map[string]string{}, nil, nil, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.Compare(states(c.run))
			check := func(line, way string, want []string) {
				var names []string
				for _, d := range got.Rows.In(way) {
					names = append(names, d.Scenario())
					if !strings.Contains(got.Text(), line+d.Scenario()) {
						t.Errorf("%s is not told:\n%s", d.Scenario(), got.Text())
					}
				}
				slices.Sort(names)
				if !slices.Equal(names, want) {
					t.Errorf("%s: %q, want %q", line, names, want)
				}
			}
			check("expected failure    ", "", c.expected)
			check("unexpected failure  ", compare.Worse, c.failures)
			check("unexpected pass     ", compare.Better, c.passes)
			if got.Exit() != c.exit {
				t.Errorf("exit code %d, want %d", got.Exit(), c.exit)
			}
			if got.Changed() != (len(c.failures)+len(c.passes) > 0) {
				t.Errorf("changed: %t", got.Changed())
			}
		})
	}
	got := b.Compare(states(map[string]string{"unproven": record.Failed})).Text()
	for _, want := range []string{
		"of a 1: 0 expected failures, 1 unexpected failures, 0 unexpected passes",
		"unproven: failed, expected not proven", "known was (x#2): s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in:\n%s", want, got)
		}
	}
}

func TestBaselineKeepsWhatPeopleWrote(t *testing.T) {
	old := compare.Baseline{Failures: []compare.Failure{
		{Scenario: "same", Issue: "i", Symptom: "in good words"},
		{Scenario: "fixed", Issue: "i", Symptom: "s"},
		{Scenario: "elsewhere", Issue: "i", Symptom: "not in this run"},
		{Scenario: "race", Sometimes: true, Issue: "i", Symptom: "s"},
	}}
	got, err := compare.NewBaseline(states(map[string]string{
		"same": record.Failed, "fixed": record.Passed, "new": record.Failed, "fuzzy": record.Unproven,
		"race": record.Passed, "skipped": record.Skipped,
	}), old)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range got.Failures {
		names = append(names, f.Scenario)
	}
	if want := []string{"elsewhere", "fuzzy", "new", "race", "same"}; !slices.Equal(names, want) {
		t.Fatalf("%q, want %q", names, want)
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
	dir := filepath.Join(t.TempDir(), "baselines")
	if _, err := got.Write(dir); err != nil {
		t.Fatal(err)
	}
	back, found, err := compare.FindBaseline(dir, "flanneld", "v9")
	if err != nil || !found || !slices.Equal(back.Failures, got.Failures) || back.Agent != "flanneld" ||
		back.Version != "v9" {
		t.Errorf("%+v, %t, %v", back, found, err)
	}
}

func TestBaselineOfAWholeRunOnly(t *testing.T) {
	failed := verdict("a", record.Verdict{State: record.Failed, Message: "lost"})
	for want, events := range map[string][]record.Event{
		"": {about(), failed, end()},
		"was interrupted": {
			about(), failed,
			verdict("b", record.Verdict{State: record.Unproven, Interrupted: true}), end(),
		},
		"did not end":     {about(), failed},
		"no scenario was": {about(), end()},
		"which agent":     {failed, end()},
	} {
		b, err := compare.NewBaseline(run(events...), compare.Baseline{})
		switch {
		case want == "" && (err != nil || len(b.Failures) != 1):
			t.Errorf("a whole run: %v, %v", b, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("want %q, got %v", want, err)
		}
	}
	none, err := compare.NewBaseline(states(map[string]string{"a": record.Passed}), compare.Baseline{})
	if err != nil || none.Failures != nil {
		t.Errorf("%v, %v", none, err)
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
		if _, err := compare.ParseBaseline([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
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
		b, _, err := compare.FindBaseline(p, "", "")
		if err != nil {
			t.Error(err)
			continue
		}
		if _, found, err := compare.FindBaseline(dir, b.Agent, b.Version); !found || err != nil {
			t.Errorf("%s is not called %s: %v", p, compare.FileName(b.Agent, b.Version), err)
		}
	}
	for _, place := range []string{dir, filepath.Join(dir, "nowhere")} {
		if _, found, err := compare.FindBaseline(place, "nobody", "v0"); found || err != nil {
			t.Errorf("%s: found %t, %v", place, found, err)
		}
	}
	if _, err := (compare.Baseline{Agent: "a/b c", Version: "v1"}).Write(t.TempDir()); err != nil {
		t.Errorf("a name that is no file's: %v", err)
	}
}
