package text

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/reports/record"
)

const (
	// maxGantts bounds the timelines of a summary and maxBars the bars of each: GitHub gives up on large ones,
	// and the HTML report shows everything.
	maxGantts = 5
	maxBars   = 8
)

// bar is a line of a timeline; times are on the record's clock.
type bar struct {
	name     string
	from, to int64
}

// gantt draws the faults and the longest outages of a scenario as a Mermaid Gantt chart, in which time zero
// is the first event of its cluster. It is "" when there is neither.
func gantt(s *record.Scenario) string {
	var b strings.Builder
	for _, c := range s.Clusters {
		end := min(c.Last, max(s.Ended, c.First+1))
		var faults, outages []bar
		for _, f := range c.Spans() {
			from := cmp.Or(f.Injected, f.Proved)
			faults = append(faults, bar{f.Of.Name, from, cmp.Or(f.Healed, end)})
		}
		if c.Probe != nil {
			for _, p := range c.Probe.Pairs {
				for _, o := range p.Outages {
					outages = append(outages, bar{p.From + " → " + p.To, o.Start, o.Start + o.Length})
				}
			}
		}
		slices.SortStableFunc(outages, func(x, y bar) int { return cmp.Compare(y.to-y.from, x.to-x.from) })
		section(&b, "broken", "crit", faults, c.First)
		section(&b, "no answer", "active", outages, c.First)
	}
	if b.Len() == 0 {
		return ""
	}
	return "gantt\n  dateFormat x\n  axisFormat %M:%S\n" + b.String()
}

func section(b *strings.Builder, name, tag string, bars []bar, zero int64) {
	if len(bars) == 0 {
		return
	}
	fmt.Fprintf(b, "  section %s\n", name)
	for _, x := range bars[:min(len(bars), maxBars)] {
		from := max(x.from-zero, 0) / 1e6
		fmt.Fprintf(b, "  %s :%s, %d, %d\n", task(x.name), tag, from, max((x.to-zero)/1e6, from+1))
	}
}

// task takes out of a name what would end it in Mermaid's grammar.
func task(name string) string {
	return strings.NewReplacer(":", " ", ";", " ", "#", " ", "%%", " ", "\n", " ").Replace(name)
}
