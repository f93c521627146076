// Package diff compares two runs: verdicts that changed, and losses, outages and recoveries that moved. With
// it a continuous integration can hold a line.
package diff

import (
	"fmt"
	"time"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// Ways in which a scenario can differ.
const (
	Worse   = "worse"
	Better  = "better"
	New     = "new"  // only the second run has it; a new one that did not pass is worse
	Gone    = "gone" // only the first run has it, and passed it: worse, unless others were chosen on purpose
	Changed = "changed"
)

// Options say what counts.
type Options struct {
	// Tolerance is how much an outage or a recovery may grow, as a part of what it was, and Least how much in
	// any case: both must be exceeded, so that a busy machine is no regression. Defaults 0.5 and 500 ms.
	Tolerance float64
	Least     time.Duration
	// Losses is how many echoes may be lost more, as a part of those that were; any loss where there was none
	// counts. Default: Tolerance.
	Losses float64
	// Missing lets scenarios be absent from the second run.
	Missing bool
}

func (o Options) withDefaults() Options {
	if o.Tolerance <= 0 {
		o.Tolerance = 0.5
	}
	if o.Least <= 0 {
		o.Least = 500 * time.Millisecond
	}
	if o.Losses <= 0 {
		o.Losses = o.Tolerance
	}
	return o
}

// Row is a scenario of either run.
type Row struct {
	Name string
	// A and B are nil where a run does not have it.
	A, B *record.Scenario
	// Way is one of the constants; "" when nothing moved.
	Way string
	// Why says what moved, one sentence each.
	Why []string
}

// Comparison is two runs side by side.
type Comparison struct {
	A, B *record.Outcome
	// Rows are in the order of the second run; what only the first has comes last.
	Rows []Row
}

// Compare compares two runs.
func Compare(a, b *record.Outcome, opts Options) Comparison {
	opts = opts.withDefaults()
	c := Comparison{A: a, B: b}
	before := map[string]*record.Scenario{}
	for _, s := range a.Scenarios {
		before[s.Name] = s
	}
	for _, s := range b.Scenarios {
		c.Rows = append(c.Rows, opts.row(before[s.Name], s))
		delete(before, s.Name)
	}
	for _, s := range a.Scenarios {
		if _, left := before[s.Name]; left {
			c.Rows = append(c.Rows, opts.row(s, nil))
		}
	}
	return c
}

// Count returns how many scenarios differ in a way.
func (c Comparison) Count(way string) int {
	n := 0
	for _, r := range c.Rows {
		if r.Way == way {
			n++
		}
	}
	return n
}

// GotWorse reports whether anything did.
func (c Comparison) GotWorse() bool { return c.Count(Worse) > 0 }

// State returns the outcome of a scenario in words; "" if there is none.
func State(s *record.Scenario) string {
	switch {
	case s == nil:
		return ""
	case s.Verdict == nil:
		return "not finished"
	}
	return s.Verdict.State
}

// rank orders outcomes from good to bad. What was skipped says nothing, so it is no better than a pass.
var rank = map[string]int{
	record.Passed:   0,
	record.Skipped:  1,
	record.Unproven: 2,
	"not finished":  2,
	record.Failed:   3,
}

func (o Options) row(a, b *record.Scenario) Row {
	r := Row{A: a, B: b}
	switch {
	case a == nil:
		r.Name, r.Way = b.Name, New
		if rank[State(b)] > rank[record.Skipped] {
			r.Way, r.Why = Worse, []string{"new, and " + State(b) + ": " + b.Sentence()}
		}
		return r
	case b == nil:
		r.Name, r.Way = a.Name, Gone
		if !o.Missing && State(a) == record.Passed {
			r.Way, r.Why = Worse, []string{"it passed, and is not in the second run"}
		}
		return r
	}
	r.Name = b.Name
	worse, better := 0, 0
	note := func(direction int, format string, args ...any) {
		switch {
		case direction > 0:
			worse++
		case direction < 0:
			better++
		}
		r.Why = append(r.Why, fmt.Sprintf(format, args...))
	}
	if before, now := State(a), State(b); before != now {
		said := fmt.Sprintf("%s → %s", before, now)
		if s := b.Sentence(); s != "" {
			said += ": " + s
		}
		note(rank[now]-rank[before], "%s", said)
		if rank[now] == rank[before] {
			r.Way = Changed
		}
	}
	if a.Verdict != nil && b.Verdict != nil {
		o.figures(a.Verdict, b.Verdict, note)
	}
	switch {
	case worse > 0:
		r.Way = Worse
	case better > 0:
		r.Way = Better
	}
	return r
}

// figures compares what the pods felt.
func (o Options) figures(a, b *record.Verdict, note func(int, string, ...any)) {
	if d := o.losses(a.Lost, b.Lost); d != 0 {
		note(d, "lost %d of %d → %d of %d", a.Lost, a.Sent, b.Lost, b.Sent)
	}
	if d := o.moved(a.LongestOutage, b.LongestOutage); d != 0 {
		note(d, "longest outage %s → %s", text.Short(time.Duration(a.LongestOutage)),
			text.Short(time.Duration(b.LongestOutage)))
	}
	if !a.Healed || !b.Healed {
		return
	}
	switch {
	case a.Recovery < 0 && b.Recovery >= 0:
		note(-1, "recovery none → %s", text.Short(time.Duration(b.Recovery)))
	case a.Recovery >= 0 && b.Recovery < 0:
		note(1, "recovery %s → none", text.Short(time.Duration(a.Recovery)))
	case a.Recovery >= 0:
		if d := o.moved(a.Recovery, b.Recovery); d != 0 {
			note(d, "recovery %s → %s", text.Short(time.Duration(a.Recovery)), text.Short(time.Duration(b.Recovery)))
		}
	}
}

// moved returns 1 if a time has grown beyond the tolerance, -1 if it has shrunk as much, else 0.
func (o Options) moved(a, b int64) int {
	switch {
	case b-a > int64(o.Least) && float64(b) > float64(a)*(1+o.Tolerance):
		return 1
	case a-b > int64(o.Least) && float64(a) > float64(b)*(1+o.Tolerance):
		return -1
	}
	return 0
}

// losses is moved for counts, in which nothing lost is a promise.
func (o Options) losses(a, b uint64) int {
	switch {
	case a == 0 && b > 0:
		return 1
	case a > 0 && b == 0:
		return -1
	case float64(b) > float64(a)*(1+o.Losses):
		return 1
	case float64(a) > float64(b)*(1+o.Losses):
		return -1
	}
	return 0
}
