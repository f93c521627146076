package baseline

import (
	"fmt"
	"strings"

	"github.com/nemesh/nemesh/reports/record"
)

// Change is a scenario whose verdict is not what the baseline says.
type Change struct {
	Scenario string
	// Was is the verdict that was expected and Is the one that came.
	Was, Is string
	Message string
	// Known is what the baseline says of it; nil where it says nothing.
	Known *Failure
}

// Comparison tells what a run has in common with a baseline and what not.
type Comparison struct {
	// Expected failed as the baseline says.
	Expected []Failure
	// Failures failed and should not have, or in another way; Passes passed and should not have.
	Failures, Passes []Change
	// NotRun are failures of the baseline whose scenario the run did not have, or did not end or skipped.
	NotRun []Failure
	// passed and unfinished count the scenarios that did.
	passed, unfinished int
}

// Compare compares a run with a baseline.
func Compare(b Baseline, o *record.Outcome) Comparison {
	known := map[string]Failure{}
	for _, f := range b.Failures {
		known[f.Scenario] = f
	}
	c := Comparison{passed: o.Count(record.Passed), unfinished: o.Unfinished()}
	ran := map[string]bool{}
	for _, s := range o.Scenarios {
		if s.Verdict == nil || s.Verdict.State == record.Skipped {
			continue
		}
		ran[s.Name] = true
		f, ok := known[s.Name]
		change := Change{Scenario: s.Name, Was: record.Passed, Is: s.Verdict.State, Message: s.Verdict.Message}
		if ok {
			change.Was, change.Known = f.verdict(), &f
		}
		switch passed := s.Verdict.State == record.Passed; {
		case ok && change.Was == change.Is:
			c.Expected = append(c.Expected, f)
		case passed && ok && !f.Sometimes:
			c.Passes = append(c.Passes, change)
		case !passed:
			c.Failures = append(c.Failures, change)
		}
	}
	for _, f := range b.Failures {
		if !ran[f.Scenario] {
			c.NotRun = append(c.NotRun, f)
		}
	}
	return c
}

// Exit returns the exit code of a run that is compared: 1 when something changed, 2 when a scenario did not
// end or none did, 0 when all is as expected. A change to "not proven" is 2 unless something else changed
// too.
func (c Comparison) Exit() int {
	unproven := 0
	for _, f := range c.Failures {
		if f.Is == record.Unproven {
			unproven++
		}
	}
	switch {
	case len(c.Failures) > unproven || len(c.Passes) > 0:
		return 1
	case unproven > 0 || c.unfinished > 0 || c.passed+len(c.Expected) == 0:
		return 2
	default:
		return 0
	}
}

// Text renders a comparison for people: what changed, then what did not in one line each.
func (c Comparison) Text(b Baseline) string {
	var out strings.Builder
	fmt.Fprintf(
		&out,
		"\nagainst the baseline of %s %s: %d expected failures, %d unexpected failures, %d unexpected "+
			"passes\n",
		b.Agent,
		b.Version,
		len(c.Expected),
		len(c.Failures),
		len(c.Passes),
	)
	for _, f := range c.Failures {
		fmt.Fprintf(&out, "  unexpected failure  %s: %s, expected %s\n", f.Scenario, f.Is, f.Was)
		if f.Known != nil {
			fmt.Fprintf(&out, "                      known was (%s): %s\n", f.Known.Issue, f.Known.Symptom)
		}
	}
	for _, p := range c.Passes {
		fmt.Fprintf(
			&out,
			"  unexpected pass     %s: known was (%s): %s\n",
			p.Scenario,
			p.Known.Issue,
			p.Known.Symptom,
		)
	}
	for _, f := range c.Expected {
		fmt.Fprintf(&out, "  expected failure    %s (%s): %s\n", f.Scenario, f.Issue, f.Symptom)
	}
	return out.String()
}
