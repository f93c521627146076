package diff

import (
	"fmt"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// Figures are the columns of a scenario in one run: lost, longest outage, recovery.
func Figures(s *record.Scenario) (lost, outage, recovery string) {
	if s == nil || s.Verdict == nil {
		return "", "", ""
	}
	v := s.Verdict
	if v.Sent > 0 {
		lost = fmt.Sprint(v.Lost)
	}
	if v.Lost > 0 {
		outage = text.Short(time.Duration(v.LongestOutage))
	}
	return lost, outage, text.Recovered(v)
}

// Table renders the scenarios that differ as a table of text, with why below each, and a line that sums up.
func (c Comparison) Table() string {
	var b strings.Builder
	for _, way := range []string{Worse, Changed, Better, New, Gone} {
		for _, r := range c.Rows {
			if r.Way != way {
				continue
			}
			fmt.Fprintf(&b, "%-7s  %s\n", way, r.Name)
			lostA, outageA, recoveryA := Figures(r.A)
			lostB, outageB, recoveryB := Figures(r.B)
			fmt.Fprintf(&b, "         %-12s %8s %10s %10s\n", "", "lost", "outage", "recovery")
			if r.A != nil {
				fmt.Fprintf(&b, "         A %-10s %8s %10s %10s\n", State(r.A), lostA, outageA, recoveryA)
			}
			if r.B != nil {
				fmt.Fprintf(&b, "         B %-10s %8s %10s %10s\n", State(r.B), lostB, outageB, recoveryB)
			}
			for _, w := range r.Why {
				fmt.Fprintf(&b, "         %s\n", w)
			}
		}
	}
	return b.String() + c.Summary() + "\n"
}

// Summary says in one line how the runs differ.
func (c Comparison) Summary() string {
	same := 0
	for _, r := range c.Rows {
		if r.Way == "" {
			same++
		}
	}
	parts := []string{}
	for _, way := range []string{Worse, Changed, Better, New, Gone} {
		if n := c.Count(way); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, way))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%d as before", same)), ", ")
}
