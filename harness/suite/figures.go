package suite

import (
	"slices"
	"time"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/reports/record"
)

// counted is how far a cluster has been counted: the specs of an ordered container share one, and each
// counts what its pods felt since the spec before it ended. The zero value is the beginning.
type counted struct {
	at    time.Time
	pairs map[[2]string]probe.PairReport
}

// take returns how far a report counts now.
func take(now time.Time, r probe.Report) counted {
	c := counted{at: now, pairs: map[[2]string]probe.PairReport{}}
	for _, p := range r.Pairs {
		c.pairs[[2]string{p.From, p.To}] = p
	}
	return c
}

// since returns what a report has more than what was counted. Of an outage that has gone on only the new
// part is left; an echo that was sent before and given up since counts as new.
func (c counted) since(r probe.Report) probe.Report {
	fresh := probe.Report{Errors: r.Errors, Skipped: r.Skipped}
	for _, p := range r.Pairs {
		before := c.pairs[[2]string{p.From, p.To}]
		p.Sent, p.Lost = p.Sent-before.Sent, p.Lost-before.Lost
		var outages []probe.Outage
		for i, o := range p.Outages {
			if i < len(before.Outages) {
				known := before.Outages[i]
				o.Start, o.Length, o.Lost = o.Start.Add(known.Length), max(o.Length-known.Length, 0), o.Lost-known.Lost
				if known.Ended || (o.Ended && o.Lost == 0) {
					continue
				}
			}
			outages = append(outages, o)
		}
		p.Outages = outages
		fresh.Pairs = append(fresh.Pairs, p)
	}
	return fresh
}

// addSummary adds to a verdict what was broken in a cluster and what its pods felt since it was counted.
// The recovery is that from the last heal of this spec: one of an earlier spec is that one's figure.
func addSummary(v *record.Verdict, s cluster.Summary, before counted) {
	v.Broke = append(v.Broke, s.Broke...)
	v.Active = append(v.Active, s.Active...)
	v.Injections = append(v.Injections, s.Injections...)
	own := before.since(s.Report)
	lost, sent := own.Lost(nil)
	v.Sent += sent
	v.Lost += lost
	v.LongestOutage = max(v.LongestOutage, int64(own.Longest()))
	if !s.Healed.After(before.at) {
		return
	}
	v.Healed = true
	switch d, ok := own.Recovery(s.Healed); {
	case !ok:
		v.Recovery = -1
	case v.Recovery >= 0:
		v.Recovery = max(v.Recovery, int64(d))
	}
}

// wereActive has a verdict say which faults were not healed when its scenario failed. By the time of the
// verdict they are, and the cluster has been closed.
func wereActive(v *record.Verdict, active []record.Injection) {
	v.Active = nil
	for _, a := range active {
		v.Active = append(v.Active, a.Name)
	}
	for i, in := range v.Injections {
		v.Injections[i].Active = slices.ContainsFunc(active, func(a record.Injection) bool {
			return a.Cluster == in.Cluster && a.N == in.N
		})
	}
}
