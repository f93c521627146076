package text

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
)

// measured sums up the scenarios in which a fault was injected.
type measured struct {
	scenarios, passed int
	sent, lost        uint64
	outage, recovery  int64
	healed            bool
	// with are the other kinds of faults that were injected in the same scenarios.
	with []string
}

// Behaviour renders, as Markdown, what is promised of each fault and what this run measured: packets
// lost of those sent, the longest outage of any pair, and the time from the last heal to the last loss.
//
// A fault is measured by the scenarios in which no other kind was injected or, where there is none, by
// those in which it came with others, which are then named. Scenarios that gave the agent a historic
// defect do not count, nor do skipped ones and those whose faults could not be proved.
func Behaviour(o *record.Outcome) string {
	var b strings.Builder
	b.WriteString("# What happens when something breaks\n\n")
	if o.Run != nil && o.Run.Agent != "" {
		fmt.Fprintf(&b, "Agent: %s\n\n", strings.TrimSpace(cell(o.Run.Agent+" "+o.Run.AgentVersion)))
	}
	rows, never := behaviourRows(o)
	if rows == "" {
		b.WriteString(
			"Nothing was measured: no scenario of this run that counts broke anything. Skipped ones do\n" +
				"not count, nor those that gave the agent a historic defect or could not prove their faults.\n",
		)
		return b.String()
	}
	b.WriteString(
		"The promises are those of overlayd. Packets lost of those sent, the longest outage of any pair,\n" +
			"and the recovery after the last heal are what this run measured, over all scenarios of a line: a\n" +
			"sum, and two maxima.\n\n",
	)
	b.WriteString("| component | fault | promised | scenarios | lost / sent | longest outage | recovery |" +
		" together with |\n")
	b.WriteString("|---|---|---|---:|---:|---:|---:|---|\n")
	b.WriteString(rows)
	if len(never) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>%d of the %d faults of the catalogue were not measured in this run"+
			"</summary>\n\n%s\n\n</details>\n", len(never), len(promises()), strings.Join(never, ", "))
	}
	return b.String()
}

// behaviourRows are the lines of the table, and the faults that no scenario measured.
func behaviourRows(o *record.Outcome) (rows string, never []string) {
	var b strings.Builder
	for _, p := range promises() {
		m := measure(o, p.id)
		if m.scenarios == 0 {
			never = append(never, p.id)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.component, p.id, p.promised, m.cells())
	}
	for _, name := range others(o) {
		m := measureAs(o, name, func(s *record.Scenario) []string { return s.Verdict.Broke })
		fmt.Fprintf(&b, "| other | %s | | %s |\n", cell(name), m.cells())
	}
	return b.String(), never
}

// cells are the columns of what was measured.
func (m measured) cells() string {
	loss, outage, recovery := "no mesh", "", ""
	if m.sent > 0 {
		loss = fmt.Sprintf("%d / %d", m.lost, m.sent)
	}
	if m.lost > 0 {
		outage = Short(time.Duration(m.outage))
		switch {
		case m.recovery < 0:
			recovery = "none"
		case m.healed:
			recovery = Short(time.Duration(m.recovery))
		}
	}
	return fmt.Sprintf("%d of %d passed | %s | %s | %s | %s", m.passed, m.scenarios, loss, outage, recovery,
		cell(strings.Join(m.with, ", ")))
}

// measure sums up a fault of the catalogue.
func measure(o *record.Outcome, id string) measured { return measureAs(o, id, broken) }

// measureAs sums up the scenarios in which something was broken, as named by of.
func measureAs(o *record.Outcome, what string, of func(*record.Scenario) []string) measured {
	var alone, together measured
	for _, s := range o.Scenarios {
		if !counts(s) {
			continue
		}
		all := of(s)
		if !slices.Contains(all, what) {
			continue
		}
		m := &together
		if len(slices.Compact(slices.Sorted(slices.Values(all)))) == 1 {
			m = &alone
		}
		m.add(s.Verdict)
		for _, other := range all {
			if other != what && !slices.Contains(m.with, other) {
				m.with = append(m.with, other)
			}
		}
	}
	if alone.scenarios > 0 {
		return alone
	}
	return together
}

func (m *measured) add(v *record.Verdict) {
	m.scenarios++
	if v.State == record.Passed {
		m.passed++
	}
	m.sent += v.Sent
	m.lost += v.Lost
	m.outage = max(m.outage, v.LongestOutage)
	if v.Healed && v.Lost > 0 {
		m.healed = true
		if v.Recovery < 0 || m.recovery < 0 {
			m.recovery = -1 // one that never recovered outweighs all
		} else {
			m.recovery = max(m.recovery, v.Recovery)
		}
	}
}

// counts tells whether a scenario says how the agent under test behaves.
func counts(s *record.Scenario) bool {
	if s.Verdict == nil || s.Verdict.State == record.Skipped || s.Verdict.State == record.Unproven {
		return false
	}
	for _, c := range s.Clusters {
		if c != nil && c.World != nil && strings.Contains(c.World.Agent, " with ") {
			return false // a historic defect
		}
	}
	return !slices.ContainsFunc(
		s.Worlds,
		func(w record.World) bool { return strings.Contains(w.Agent, " with ") },
	)
}

// broken lists the kinds of faults that were injected in a scenario: by id, and by name where there is
// none. A label fault:… names one that a scenario brings about by hand.
func broken(s *record.Scenario) []string {
	var kinds []string
	add := func(kind string) {
		if kind != "" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, name := range s.Verdict.Broke {
		add(cmp.Or(FaultID(name), name))
	}
	for _, l := range s.Verdict.Labels {
		if id, ok := strings.CutPrefix(l, "fault:"); ok && slices.Contains(Faults(), id) {
			add(id)
		}
	}
	return kinds
}

// others lists the names of faults that are in no catalogue.
func others(o *record.Outcome) []string {
	var names []string
	for _, s := range o.Scenarios {
		if !counts(s) {
			continue
		}
		for _, name := range s.Verdict.Broke {
			if FaultID(name) == "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
