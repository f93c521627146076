package compare

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/html"
	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
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

// Diff is two runs side by side.
type Diff struct {
	A, B Run
	// Rows are in the order of the second run; what only the first has comes last.
	Rows Differences
}

// Runs compares two runs.
func Runs(a, b Run, opts Options) Diff {
	opts = opts.withDefaults()
	d := Diff{A: a, B: b}
	for _, is := range b.Results {
		d.Rows = append(d.Rows, opts.difference(a.Result(is.Scenario), is))
	}
	for _, was := range a.Results {
		if b.index(was.Scenario) < 0 {
			d.Rows = append(d.Rows, opts.difference(was, Result{}))
		}
	}
	return d
}

// GotWorse reports whether anything did.
func (d Diff) GotWorse() bool { return len(d.Rows.In(Worse)) > 0 }

// rank orders states from good to bad. What was skipped says nothing, so it is no better than a pass.
var rank = map[string]int{
	record.Passed:   0,
	record.Skipped:  1,
	record.Unproven: 2,
	Unfinished:      2,
	record.Failed:   3,
}

func (o Options) difference(was, is Result) Difference {
	d := Difference{Was: was, Is: is}
	switch {
	case was.State == "":
		d.Way = New
		if rank[is.State] > rank[record.Skipped] {
			d.Way, d.Why = Worse, []string{"new, and " + is.State + ": " + is.Sentence}
		}
		return d
	case is.State == "":
		d.Way = Gone
		if !o.Missing && was.State == record.Passed {
			d.Way, d.Why = Worse, []string{"it passed, and is not in the second run"}
		}
		return d
	}
	worse, better := false, false
	note := func(direction int, format string, args ...any) {
		worse, better = worse || direction > 0, better || direction < 0
		d.Why = append(d.Why, fmt.Sprintf(format, args...))
	}
	if was.State != is.State {
		said := fmt.Sprintf("%s → %s", was.State, is.State)
		if is.Sentence != "" {
			said += ": " + is.Sentence
		}
		d.Way = Changed
		note(rank[is.State]-rank[was.State], "%s", said)
	}
	if was.State != Unfinished && is.State != Unfinished {
		o.figures(was, is, note)
	}
	switch {
	case worse:
		d.Way = Worse
	case better:
		d.Way = Better
	}
	return d
}

// figures compares what the pods felt.
func (o Options) figures(a, b Result, note func(int, string, ...any)) {
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

// differing are the ways in the order in which they are told.
var differing = []string{Worse, Changed, Better, New, Gone}

// Table renders the scenarios that differ as a table of text, with why below each, and a line that sums up.
func (d Diff) Table() string {
	var b strings.Builder
	for _, way := range differing {
		for _, r := range d.Rows.In(way) {
			fmt.Fprintf(&b, "%-7s  %s\n", way, r.Scenario())
			fmt.Fprintf(&b, "         %-12s %8s %10s %10s\n", "", "lost", "outage", "recovery")
			for i, result := range []Result{r.Was, r.Is} {
				if result.State != "" {
					f := result.Figures()
					fmt.Fprintf(&b, "         %c %-10s %8s %10s %10s\n", 'A'+i, result.State, f[0], f[1], f[2])
				}
			}
			for _, w := range r.Why {
				fmt.Fprintf(&b, "         %s\n", w)
			}
		}
	}
	return b.String() + d.Summary() + "\n"
}

// Summary says in one line how the runs differ.
func (d Diff) Summary() string {
	var parts []string
	for _, way := range differing {
		if n := len(d.Rows.In(way)); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, way))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%d as before", len(d.Rows.In("")))), ", ")
}

//go:embed diff.tmpl
var diffPage string

// wayState gives each way the colour of a state.
var wayState = map[string]string{
	Worse: record.Failed, Better: record.Passed, Changed: record.Unproven,
	New: record.Skipped, Gone: record.Skipped, "": record.Skipped,
}

// HTML renders every scenario of both runs as one page, those that differ first.
func (d Diff) HTML() ([]byte, error) {
	return html.Page{Name: "nemesh diff", About: d.Summary(), Body: diffPage, Data: struct {
		Diff
		Ways   []string
		States map[string]string
	}{d, append(differing, ""), wayState}}.Render()
}
