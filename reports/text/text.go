// Package text renders a record for people who read a terminal, and as Markdown for those who read a pull
// request. Nothing is shown that is not in the record.
package text

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
)

// Style says how a terminal is written to.
type Style struct {
	// Color marks verdicts with ANSI colours.
	Color bool
}

var marks = map[string]struct{ sign, color string }{
	record.Passed:   {"ok  ", "\x1b[32m"},
	record.Failed:   {"FAIL", "\x1b[31m"},
	record.Unproven: {"????", "\x1b[33m"},
	record.Skipped:  {"skip", "\x1b[33m"},
}

func (s Style) mark(state string) string {
	m, ok := marks[state]
	if !ok {
		return state
	}
	if s.Color {
		return m.color + m.sign + "\x1b[0m"
	}
	return m.sign
}

// Line renders a scenario that has ended as one line: verdict, duration, name, and what its pods felt.
func (s Style) Line(sc *record.Scenario) string {
	v := sc.Verdict
	line := fmt.Sprintf("%s %6.1fs  %s", s.mark(v.State), v.Took().Seconds(), sc.Name)
	if felt := Felt(v); felt != "" {
		line += "\n              " + felt
	}
	return line
}

// Felt says in one line what was broken, how many packets were lost, and how long that lasted. Of a scenario
// that passed it does not say that pairs did not recover: the scenario did not ask for it.
func Felt(v *record.Verdict) string {
	var parts []string
	if len(v.Broke) > 0 {
		parts = append(parts, strings.Join(Counted(v.Broke), ", "))
	}
	if v.Sent > 0 {
		parts = append(parts, fmt.Sprintf("lost %d of %d", v.Lost, v.Sent))
	}
	if v.Lost > 0 {
		parts = append(parts, "longest outage "+Short(time.Duration(v.LongestOutage)))
	}
	switch {
	case v.Healed && v.Recovery < 0:
		if v.State != record.Passed {
			parts = append(parts, "not recovered")
		}
	case v.Healed && v.Lost > 0:
		parts = append(parts, "recovered after "+Short(time.Duration(v.Recovery)))
	}
	return strings.Join(parts, " · ")
}

// Short renders a duration with the resolution of a measurement: 10 ms.
func Short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Round(10*time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// notInFilters are what a shell, or nemesh, would take for something else than a part of a name.
var notInFilters = strings.NewReplacer("'", ".", ":", ".")

// Rerun is the command that runs one scenario again, which it names by a regular expression.
func Rerun(sc *record.Scenario) string {
	name := "'" + notInFilters.Replace(regexp.QuoteMeta(sc.Name)) + "'"
	defect := ""
	if sc.Defect != "" {
		defect = "NEMESH_DEFECT=" + sc.Defect + " "
	}
	if sc.Suite != "" {
		return defect + "nemesh run --suite " + sc.Suite + " " + name
	}
	return defect + "make chaos FOCUS=" + name
}

// Failure renders why a scenario did not pass: what was expected, what was there, what was broken at the
// time, the state that matters, and how to run it again.
func (s Style) Failure(sc *record.Scenario) string {
	v := sc.Verdict
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s %s\n  at %s\n", s.mark(v.State), sc.Name, v.Location)
	block(&b, "message", shorten(strings.Split(strings.TrimSpace(v.Message), "\n")))
	if len(sc.Reach) > 0 {
		block(
			&b,
			"reachability",
			strings.Split(strings.TrimRight(record.ReachTable(sc.Reach), "\n"), "\n"),
		)
	}
	active := Counted(v.Active)
	if len(active) == 0 {
		active = []string{"nothing"}
	}
	block(&b, "broken at that time", active)
	for _, st := range sc.State {
		if matters(st) && len(st.Lines) > 0 {
			block(&b, st.What+" of "+st.Where, st.Lines)
		}
	}
	block(&b, "run it again", []string{Rerun(sc)})
	return b.String()
}

// shorten keeps the lines that fit on a screen; the record has them all.
func shorten(lines []string) []string {
	const screen = 24
	if len(lines) <= screen {
		return lines
	}
	left := fmt.Sprintf("… and %d lines more in the record", len(lines)-screen)
	return append(slices.Clone(lines[:screen]), left)
}

// matters leaves out the parts of a state that explain little.
func matters(s record.State) bool { return s.What != "links" && s.What != "addresses" }

func block(b *strings.Builder, title string, lines []string) {
	fmt.Fprintf(b, "  %s:\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "    %s\n", l)
	}
}

// Summary renders the end of a run in a few lines.
func (s Style) Summary(o *record.Outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d passed, %d failed", o.Count(record.Passed), o.Count(record.Failed))
	for _, other := range []string{record.Unproven, record.Skipped} {
		if n := o.Count(other); n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, other)
		}
	}
	if n := o.Unfinished(); n > 0 {
		fmt.Fprintf(&b, ", %d not finished", n)
	}
	if n := o.Planned - len(o.Scenarios); n > 0 {
		fmt.Fprintf(&b, ", %d not started", n)
	}
	if o.End != nil {
		fmt.Fprintf(&b, " in %.1f s", o.Duration().Seconds())
	}
	b.WriteString("\n")
	return b.String()
}

// Slowest names the scenario of a run that took the longest. It is "" if fewer than two scenarios ran.
func Slowest(o *record.Outcome) string {
	var slowest *record.Scenario
	ran := 0
	for _, s := range o.Scenarios {
		if s.Verdict == nil || s.Verdict.State == record.Skipped {
			continue
		}
		ran++
		if slowest == nil || s.Verdict.Took() > slowest.Verdict.Took() {
			slowest = s
		}
	}
	if ran < 2 {
		return ""
	}
	return fmt.Sprintf("slowest: %s (%.1f s)\n", slowest.Name, slowest.Verdict.Took().Seconds())
}
