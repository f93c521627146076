package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
)

// Counted lists each name once, in the order of first occurrence. A name that occurs several times is
// followed by how often: "agent on node02 restarted ×10".
func Counted(names []string) []string {
	var once []string
	count := map[string]int{}
	for _, n := range names {
		if count[n]++; count[n] == 1 {
			once = append(once, n)
		}
	}
	for i, n := range once {
		if count[n] > 1 {
			once[i] = fmt.Sprintf("%s ×%d", n, count[n])
		}
	}
	return once
}

// Recovered says how long after the last heal the last pair worked again. It is "" if nothing was healed or
// lost, and "none" if a pair did not work again and the scenario did not pass.
func Recovered(v *record.Verdict) string {
	switch {
	case v.Healed && v.Recovery < 0:
		if v.State == record.Passed {
			return ""
		}
		return "none"
	case v.Healed && v.Lost > 0:
		return Short(time.Duration(v.Recovery))
	}
	return ""
}

// Thousands renders a number with a thin space between groups of three digits.
func Thousands(n uint64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// Ends says, in a sentence, that and where a record ends before its run did; "" if it does not.
func Ends(o *record.Outcome) string {
	var b strings.Builder
	if len(o.Damaged) > 0 {
		fmt.Fprintf(&b, "Lines that cannot be read, from line %d on: %d. ", o.Damaged[0], len(o.Damaged))
	}
	if o.Ended() {
		return strings.TrimSpace(b.String())
	}
	after := time.Duration(o.Last - o.First)
	fmt.Fprintf(&b, "The record ends %s after it began, before the run did", Short(after))
	if o.Cut {
		b.WriteString(", in the middle of a line")
	}
	var open []string
	for _, s := range o.Scenarios {
		if s.Verdict == nil {
			open = append(open, s.Name)
		}
	}
	if len(open) > 0 {
		fmt.Fprintf(&b, "; at that time ran: %s", strings.Join(open, "; "))
	}
	b.WriteString(". What is shown is all that it holds.")
	return b.String()
}

// Contradictions lists where a record contradicts itself, one sentence each.
func Contradictions(o *record.Outcome) []string {
	wrong := o.Recheck()
	for _, s := range o.Scenarios {
		for _, c := range s.Recheck() {
			wrong = append(wrong, s.Name+": "+c)
		}
	}
	return wrong
}
