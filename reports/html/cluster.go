package html

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nemesh/nemesh/reports/record"
)

// marks are the events of processes and of keys, by time. Renewals are left out: a lease that is renewed has
// not changed.
func marks(c *record.Cluster) []markData {
	all := []markData{}
	for _, p := range c.Processes {
		m := markData{
			T:    ms(p.At, c.First),
			Kind: "start",
			On:   p.Of.Machine,
			Text: fmt.Sprintf("%s on %s started (pid %d)",
				p.Of.Name, p.Of.Machine, p.Of.Pid),
		}
		if p.Of.Exited {
			m.Kind, m.Text = "exit", fmt.Sprintf("%s on %s ended: %s", p.Of.Name, p.Of.Machine, p.Of.How)
		}
		all = append(all, m)
	}
	for _, l := range c.Leases {
		if l.Of.Change == record.LeasePut && l.Of.Value == l.Of.Was {
			continue
		}
		m := markData{T: ms(l.At, c.First), Kind: "lease", Text: leaseText(l.Of)}
		if l.Of.Change == record.LeaseUnseen {
			m.Kind = "unseen"
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b markData) int { return cmp.Compare(a.T, b.T) })
	return all
}

// leaseText says a change of a key as a person would.
func leaseText(l record.Lease) string {
	switch l.Change {
	case record.LeaseUnseen:
		return "keys are not seen any more: " + l.Value
	case record.LeaseFound:
		if l.Key == "" {
			return "keys are seen again, as they were"
		}
		return l.Key + " found: " + l.Value
	case record.LeaseDeleted:
		return l.Key + " deleted or expired; it was " + l.Was
	case record.LeaseMissed:
		return l.Key + " is gone; it was " + l.Was
	}
	if l.Was == "" {
		return l.Key + " written: " + l.Value
	}
	return l.Key + " changed: " + l.Value
}

// logs keeps the last lines of output that fit the budget, since scenarios fail at their end.
func (b *builder) logs(c *record.Cluster) ([]logData, int) {
	first, size := len(c.Logs), 0
	for first > 0 && size < b.perLog {
		first--
		size += len(c.Logs[first].Of.Text) + 40
	}
	lines := make([]logData, 0, len(c.Logs)-first)
	for _, l := range c.Logs[first:] {
		lines = append(
			lines,
			logData{T: ms(l.At, c.First), M: l.Of.Machine, P: l.Of.Process, Tx: record.Plain(l.Of.Text)},
		)
	}
	slices.SortStableFunc(lines, func(a, b logData) int { return cmp.Compare(a.T, b.T) })
	return lines, c.Dropped + first
}

// pair puts the buckets of a pair into columns. Neighbours without loss are joined when the page would get
// too large otherwise.
func (b *builder) pair(c *record.Cluster, p *record.PairSeries) pairData {
	d := pairData{From: p.From, To: p.To}
	for i := range d.B {
		d.B[i] = []float64{}
	}
	joined := int64(0)
	for _, l := range p.Lines {
		for _, k := range l.Buckets {
			d.Sent += uint64(k[record.BucketSent])
			d.Lost += uint64(k[record.BucketLost])
			at := ms(l.Start+k[record.BucketBegin]*1e6, c.First)
			row := [6]float64{
				at, float64(k[record.BucketLength]), float64(k[record.BucketSent]),
				float64(k[record.BucketLost]), float64(k[record.BucketMean]), float64(k[record.BucketMax]),
			}
			if n := len(d.B[0]) - 1; n >= 0 && joined+1 < b.merging && row[3] == 0 && d.B[3][n] == 0 {
				d.join(n, row)
				joined++
				continue
			}
			joined = 0
			for i, v := range row {
				d.B[i] = append(d.B[i], v)
			}
		}
	}
	if c.Probe != nil {
		for _, q := range c.Probe.Pairs {
			if q.From == p.From && q.To == p.To {
				for _, o := range q.Outages {
					d.Outages = append(d.Outages, [3]float64{ms(o.Start, c.First), ms(o.Length, 0), float64(o.Lost)})
				}
			}
		}
	}
	return d
}

// join adds a bucket to the nth.
func (d *pairData) join(n int, row [6]float64) {
	before, more := d.B[2][n], row[2]
	if before+more > 0 {
		d.B[4][n] = float64(int64((d.B[4][n]*before + row[4]*more) / (before + more)))
	}
	d.B[1][n] = row[0] + row[1] - d.B[0][n]
	d.B[2][n] += more
	d.B[5][n] = max(d.B[5][n], row[5])
}

// unreachable are the codes of ICMP's destination unreachable (RFC 792, RFC 1812).
var unreachable = map[int]string{
	0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable", 3: "port unreachable",
	4: "too large to forward", 13: "administratively prohibited",
}

func icmpText(e record.ICMPError) string {
	what := fmt.Sprintf("ICMP type %d code %d", e.Type, e.Code)
	if name := unreachable[e.Code]; e.Type == 3 && name != "" {
		what = name
	}
	return fmt.Sprintf("%s tells %s: %s is %s (%d times)", e.Reporter, e.At, e.Destination, what, e.Count)
}

// moments compares the snapshots of a cluster: each line once, with the moments at which it was there. Of
// too many snapshots the first and the last are kept.
func moments(c *record.Cluster) ([]momentData, []stateData) {
	kept := c.Moments
	if over := len(kept) - maxMoments; over > 0 {
		kept = slices.Concat(kept[:maxMoments/2], kept[len(kept)-maxMoments/2:])
	}
	times, states := []momentData{}, []stateData{}
	place := map[[2]string]int{}
	lines := map[[3]string]int{}
	for i, m := range kept {
		times = append(times, momentData{T: ms(m.At, c.First), When: m.When})
		for _, s := range m.Of {
			key := [2]string{s.Where, s.What}
			at, known := place[key]
			if !known {
				at = len(states)
				place[key] = at
				states = append(states, stateData{Where: s.Where, What: s.What, Lines: []lineData{}})
			}
			for _, l := range s.Lines {
				same := l
				if s.What == "neighbours" {
					same = settled(l)
				}
				id := [3]string{s.Where, s.What, same}
				n, known := lines[id]
				if !known {
					n = len(states[at].Lines)
					lines[id] = n
					states[at].Lines = append(states[at].Lines, lineData{Text: l})
				}
				line := &states[at].Lines[n]
				if _, now, ok := cutLast(l); ok && same != l && !strings.Contains(line.Text, now) {
					line.Text += " or " + now
				}
				line.Has |= 1 << i
			}
		}
	}
	states = slices.DeleteFunc(states, func(s stateData) bool { return len(s.Lines) == 0 })
	for _, s := range states {
		slices.SortStableFunc(s.Lines, func(a, b lineData) int { return strings.Compare(a.Text, b.Text) })
	}
	return times, states
}

// settled is a neighbour's line without its state where that is one of those between which an entry that
// works goes to and fro (NUD_REACHABLE, STALE, DELAY, PROBE of linux/neighbour.h): that is no difference.
func settled(line string) string {
	entry, state, _ := cutLast(line)
	switch state {
	case "REACHABLE", "STALE", "DELAY", "PROBE":
		return entry
	}
	return line
}

// cutLast splits a line before its last word.
func cutLast(line string) (before, last string, found bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return line, "", false
	}
	return line[:i], line[i+1:], true
}

// number renders a figure without digits that mean nothing.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
