package record

import (
	"fmt"
	"slices"
	"time"
)

// Recheck compares a scenario's verdict with what the record holds of it, and returns a sentence for each
// contradiction. Nothing is run.
func (s *Scenario) Recheck() []string {
	v := s.Verdict
	if v == nil {
		return nil
	}
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if v.State == Passed {
		for _, f := range s.Faults {
			if f.Phase == FaultUnproved {
				say("it passed although %q was not proven", f.Name)
			}
		}
		for _, i := range s.Invariants {
			if !i.OK && !i.Waived {
				say("it passed although %q did not hold when it was checked last", i.Name)
			}
		}
		for _, r := range s.Asserted {
			if r.Want != r.Got {
				say("it passed although its last comparison has %s → %s wrong", r.From, r.To)
			}
		}
	}
	if (v.State == Failed || v.State == Unproven) && v.Message == "" {
		say("it is %s and does not say why", v.State)
	}
	if v.Lost > v.Sent {
		say("it lost %d echoes of %d", v.Lost, v.Sent)
	}
	return append(wrong, s.recount()...)
}

// tolerance is how far a time may be from what it is computed from again: writing an event takes a moment.
const tolerance = 100 * time.Millisecond

// recount compares the figures of a verdict with the outages of its clusters, if all have ended.
func (s *Scenario) recount() []string {
	v := s.Verdict
	if len(s.Clusters) == 0 {
		return nil
	}
	var sent, lost uint64
	var longest, recovery int64
	healed := false
	for _, c := range s.Clusters {
		if c.Probe == nil || c.World == nil {
			return nil
		}
		for _, p := range c.Probe.Pairs {
			sent, lost = sent+p.Sent, lost+p.Lost
			for _, o := range p.Outages {
				longest = max(longest, o.Length)
			}
		}
		if d, ok := c.recovery(); ok {
			healed, recovery = true, worse(recovery, d)
		}
	}
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if v.Sent > sent || v.Lost > lost || v.LongestOutage > longest {
		say("it says %d of %d echoes lost, longest outage %s, and its pairs have %d of %d and %s", v.Lost, v.Sent,
			time.Duration(v.LongestOutage), lost, sent, time.Duration(longest))
	}
	if !s.last() {
		return wrong
	}
	if s.shares() {
		return append(wrong, s.together(sent, lost)...)
	}
	if v.Sent != sent || v.Lost != lost || v.LongestOutage != longest {
		say("it ended with its cluster and counts %d of %d echoes lost, longest outage %s; its pairs have %d of "+
			"%d and %s", v.Lost, v.Sent, time.Duration(v.LongestOutage), lost, sent, time.Duration(longest))
	}
	if off := time.Duration(v.Recovery - recovery); healed && v.Healed && off.Abs() > tolerance {
		say("it says it recovered after %s; by its outages that is %s", span(v.Recovery), span(recovery))
	}
	return wrong
}

// shares reports whether another scenario used one of its clusters.
func (s *Scenario) shares() bool {
	return slices.ContainsFunc(s.Clusters, func(c *Cluster) bool { return len(c.Users) > 1 })
}

// together checks that the scenarios of a shared cluster have counted all that its pairs have.
func (s *Scenario) together(sent, lost uint64) []string {
	if len(s.Clusters) != 1 {
		return nil
	}
	var counted, gone uint64
	for _, user := range s.Clusters[0].Users {
		counted, gone = counted+user.Verdict.Sent, gone+user.Verdict.Lost
	}
	if counted >= sent && gone >= lost {
		return nil
	}
	return []string{fmt.Sprintf("it was the last in its cluster, whose scenarios count %d of %d echoes lost "+
		"together; its pairs have %d of %d", gone, counted, lost, sent)}
}

// last reports whether the clusters ended with the scenario: what they have measured is what it counted.
func (s *Scenario) last() bool {
	for _, c := range s.Clusters {
		if c.Closed == 0 || c.Closed > s.Ended {
			return false
		}
	}
	return true
}

func worse(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

func span(d int64) string {
	if d < 0 {
		return "never"
	}
	return time.Duration(d).String()
}

// recovery is the time from the last heal to the end of the last outage of any pair, -1 if one has not
// ended; false if nothing was healed.
func (c *Cluster) recovery() (int64, bool) {
	var healed int64
	for _, f := range c.Faults {
		if f.Of.Phase == FaultHealed {
			healed = f.At
		}
	}
	if healed == 0 {
		return 0, false
	}
	var slowest int64
	for _, p := range c.Probe.Pairs {
		if len(p.Outages) == 0 {
			continue
		}
		o := p.Outages[len(p.Outages)-1]
		if !o.Ended {
			return -1, true
		}
		slowest = max(slowest, o.Start+o.Length-healed)
	}
	return slowest, true
}

// Recheck compares the exit code with the verdicts, and the counted echoes of each cluster with those of its
// series. Contradictions of scenarios are in Scenario.Recheck.
func (o *Outcome) Recheck() []string {
	var wrong []string
	if want := o.Exit(); o.End != nil && o.End.Exit < want {
		wrong = append(
			wrong,
			fmt.Sprintf("the run ended with exit code %d and its verdicts ask for %d", o.End.Exit,
				want),
		)
	}
	for _, c := range o.Clusters {
		wrong = append(wrong, c.recount()...)
	}
	return wrong
}

// recount compares each pair's total with the sum of its buckets.
func (c *Cluster) recount() []string {
	if c.Probe == nil || len(c.Pairs) == 0 {
		return nil
	}
	type pair struct{ from, to string }
	totals := map[pair][2]uint64{}
	for _, p := range c.Probe.Pairs {
		t := totals[pair{p.From, p.To}]
		totals[pair{p.From, p.To}] = [2]uint64{t[0] + p.Sent, t[1] + p.Lost}
	}
	var wrong []string
	for _, p := range c.Pairs {
		var sent, lost uint64
		for _, l := range p.Lines {
			for _, b := range l.Buckets {
				sent, lost = sent+uint64(b[BucketSent]), lost+uint64(b[BucketLost])
			}
		}
		if t := totals[pair{p.From, p.To}]; t != [2]uint64{sent, lost} {
			wrong = append(
				wrong,
				fmt.Sprintf("cluster %s: the series of %s → %s has %d of %d echoes lost, its total "+
					"says %d of %d", c.ID, p.From, p.To, lost, sent, t[1], t[0]),
			)
		}
	}
	return wrong
}
