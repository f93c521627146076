// Package compare says what differs between two runs of the same scenarios. A run is what each scenario did
// in it. Another one is compared with it: an earlier run (diff.go), the failures that are known of the agent
// (baseline.go), a run with a historic defect (defects.go), a run with another agent (table.go), a run with
// another version (bisect.go). The package reads records and runs nothing.
package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// Unfinished is the state of a scenario that began and has no verdict.
const Unfinished = "not finished"

// Result is what a scenario did in one run. The zero value is that of a scenario that is not in the run.
type Result struct {
	Scenario string
	// Verdict holds its state, message and figures. A scenario that has none is Unfinished.
	record.Verdict
	// Sentence says why it did not pass.
	Sentence string
	// Dir is the folder of its run.
	Dir string
}

// Run is what each scenario did in one run.
type Run struct {
	// About says what was run; it is zero where the record does not say.
	About record.Run
	Dir   string
	// Whole says that the record does not end before the run did.
	Whole bool
	// Results are in the order in which the scenarios ended; those that did not end come last.
	Results []Result
}

// Read reads a run from its record or from the folder that holds it. Errors are those of record.Load.
func Read(path string) (Run, error) {
	o, err := record.Load(path)
	if err != nil {
		return Run{}, err
	}
	return Of(o, path), nil
}

// Of takes what matters here out of a record. Dir is the folder of the run.
func Of(o *record.Outcome, dir string) Run {
	r := Run{Dir: dir, Whole: o.Ended()}
	if o.Run != nil {
		r.About = *o.Run
	}
	for _, s := range o.Scenarios {
		result := Result{Scenario: s.Name, Sentence: s.Sentence(), Dir: dir}
		if result.State = Unfinished; s.Verdict != nil {
			result.Verdict = *s.Verdict
		}
		r.Results = append(r.Results, result)
	}
	return r
}

// Agent names the agent under test and its version.
func (r Run) Agent() string { return strings.TrimSpace(r.About.Agent + " " + r.About.AgentVersion) }

// Result returns what a scenario did.
func (r Run) Result(scenario string) Result {
	if i := r.index(scenario); i >= 0 {
		return r.Results[i]
	}
	return Result{}
}

func (r Run) index(scenario string) int {
	return slices.IndexFunc(r.Results, func(s Result) bool { return s.Scenario == scenario })
}

// Count returns how many scenarios ended in a state.
func (r Run) Count(state string) int {
	n := 0
	for _, s := range r.Results {
		if s.State == state {
			n++
		}
	}
	return n
}

// Figures are what the pods felt, as columns of a table: echoes lost, longest outage, recovery. What does
// not apply is empty.
func (r Result) Figures() [3]string {
	var lost, outage string
	if r.Sent > 0 {
		lost = fmt.Sprint(r.Lost)
	}
	if r.Lost > 0 {
		outage = text.Short(time.Duration(r.LongestOutage))
	}
	return [3]string{lost, outage, text.Recovered(&r.Verdict)}
}

// Felt is what the pods felt in a few words: echoes lost, and the time from the heal to the last loss.
func (r Result) Felt() string {
	var parts []string
	if r.Sent > 0 {
		parts = append(parts, fmt.Sprintf("lost %d of %d", r.Lost, r.Sent))
	}
	switch {
	case r.Healed && r.Recovery < 0:
		parts = append(parts, "not recovered")
	case r.Healed && r.Lost > 0:
		parts = append(parts, "recovered after "+text.Short(time.Duration(r.Recovery)))
	}
	return strings.Join(parts, ", ")
}

// firstLine is the first line of the message that says something.
func (r Result) firstLine() string {
	for line := range strings.Lines(r.Message) {
		if line = strings.TrimSpace(line); line != "" {
			const long = 200
			if runes := []rune(line); len(runes) > long {
				line = string(runes[:long]) + "…"
			}
			return line
		}
	}
	return "it failed without a message"
}

// issueLabel begins the label that names the issue of a scenario.
const issueLabel = "issue:"

// issue is the issue that the scenario comes from, such as flannel-636.
func (r Result) issue() string {
	for _, l := range r.Labels {
		if issue, ok := strings.CutPrefix(l, issueLabel); ok {
			return issue
		}
	}
	return "none"
}

// Ways in which a scenario can differ.
const (
	Worse   = "worse"
	Better  = "better"
	New     = "new"  // only the second run has it; a new one that did not pass is worse
	Gone    = "gone" // only the first run has it, and passed it: worse, unless others were chosen on purpose
	Changed = "changed"
)

// Difference is a scenario in two runs.
type Difference struct {
	// Was is of the first run and Is of the second.
	Was, Is Result
	// Way is one of the constants; "" when nothing moved.
	Way string
	// Why says what moved, one sentence each.
	Why []string
}

// Scenario is its name.
func (d Difference) Scenario() string {
	if d.Is.State == "" {
		return d.Was.Scenario
	}
	return d.Is.Scenario
}

// Differences are those of several scenarios.
type Differences []Difference

// In returns those of one way.
func (all Differences) In(way string) Differences {
	var some Differences
	for _, d := range all {
		if d.Way == way {
			some = append(some, d)
		}
	}
	return some
}
