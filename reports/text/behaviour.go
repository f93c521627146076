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
	kinds := measuredKinds(o)
	if len(kinds) == 0 {
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
	for _, k := range kinds {
		component, promised := Said(k)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(component), cell(label(k)), cell(promised),
			measure(o, k).cells())
	}
	var never []string
	for _, k := range o.Catalogue {
		if !slices.Contains(kinds, k) {
			never = append(never, k.ID)
		}
	}
	if len(never) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>%d of the %d faults of the catalogue were not measured in this run"+
			"</summary>\n\n%s\n\n</details>\n", len(never), len(o.Catalogue), strings.Join(never, ", "))
	}
	return b.String()
}

// NotRecorded is what stands for the component and the promise of a fault in a record of before they were
// recorded.
const NotRecorded = "not recorded"

// Said returns what a report says of a kind of fault: what it breaks, and what should be felt.
func Said(k record.FaultKind) (component, promised string) {
	if k.ID == "" {
		return NotRecorded, NotRecorded
	}
	return k.Component, k.Promise
}

// label is what a kind of fault is called in a table: its id or, where it has none of its own, its name.
func label(k record.FaultKind) string {
	if k.ID == "" || k.ID == record.FaultCustom {
		return k.About
	}
	return k.ID
}

// measuredKinds lists the kinds of faults that scenarios which count have injected: those of the catalogue
// in its order, then the others in the order in which they were injected first.
func measuredKinds(o *record.Outcome) []record.FaultKind {
	var found []record.FaultKind
	for _, s := range o.Scenarios {
		if !counts(o, s) {
			continue
		}
		for _, k := range broken(o, s) {
			if !slices.Contains(found, k) {
				found = append(found, k)
			}
		}
	}
	place := func(k record.FaultKind) int {
		if i := slices.Index(o.Catalogue, k); i >= 0 {
			return i
		}
		return len(o.Catalogue)
	}
	slices.SortStableFunc(found, func(a, b record.FaultKind) int { return cmp.Compare(place(a), place(b)) })
	return found
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

// measure sums up the scenarios in which a kind of fault was injected.
func measure(o *record.Outcome, what record.FaultKind) measured {
	var alone, together measured
	for _, s := range o.Scenarios {
		if !counts(o, s) {
			continue
		}
		all := broken(o, s)
		if !slices.Contains(all, what) {
			continue
		}
		m := &together
		if len(all) == 1 {
			m = &alone
		}
		m.add(s.Verdict)
		for _, other := range all {
			if name := label(other); other != what && !slices.Contains(m.with, name) {
				m.with = append(m.with, name)
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
func counts(o *record.Outcome, s *record.Scenario) bool {
	if s.Verdict == nil || s.Verdict.State == record.Skipped || s.Verdict.State == record.Unproven {
		return false
	}
	for _, c := range s.Clusters {
		if c != nil && c.World != nil && defective(o, *c.World) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Worlds, func(w record.World) bool { return defective(o, w) })
}

// defective tells whether a world's agent has a historic defect. In a record of before that was recorded, an
// agent that is called otherwise than the run's may have one.
func defective(o *record.Outcome, w record.World) bool {
	if w.Driver != "" || o.Run == nil || o.Run.Agent == "" {
		return len(w.Defects) > 0
	}
	return w.Agent != o.Run.Agent
}

// broken lists the kinds of faults that were injected in a scenario, each once. A label fault:… names one
// of the catalogue that the scenario brings about by hand.
func broken(o *record.Outcome, s *record.Scenario) []record.FaultKind {
	var kinds []record.FaultKind
	add := func(k record.FaultKind) {
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	for _, i := range s.Verdict.Injected() {
		add(o.KindOf(i))
	}
	for _, l := range s.Verdict.Labels {
		if id, ok := strings.CutPrefix(l, record.FaultLabel); ok {
			if k, ok := o.FaultKind(id); ok {
				add(k)
			}
		}
	}
	return kinds
}
