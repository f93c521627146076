package record

import (
	"slices"
	"strings"
)

// Cluster is what happened in one cluster, in order and with its times.
type Cluster struct {
	ID string
	// First and Last are the times of its first and last event.
	First, Last int64
	World       *World
	Pods        []Timed[Pod]
	Steps       []Timed[string]
	Faults      []Timed[Fault]
	Processes   []Timed[Process]
	Leases      []Timed[Lease]
	// Logs are the lines of output; Dropped counts those in the middle that are left out for their number.
	Logs    []Timed[Log]
	Dropped int
	// Pairs are the probed pairs with their buckets, in the order in which they began.
	Pairs []*PairSeries
	// Probe is nil, and Closed 0, when the cluster was not torn down.
	Probe   *Probe
	Closed  int64
	Moments []Timed[[]State]
	Traces  []Timed[Trace]
	// Users are the scenarios that used it and have ended, in that order.
	Users []*Scenario
}

// Timed is something with the time and the scenario in which it happened, and when in a scenario if that was
// said (see Before).
type Timed[T any] struct {
	At       int64
	Scenario string
	When     string
	Of       T
}

// PairSeries is a pair with all its buckets. The beginning of a bucket is counted from the start of its
// line.
type PairSeries struct {
	From, To string
	Lines    []Series
}

const (
	// keepFirst and keepLast bound the lines of output that a cluster keeps: how it began and how it ended.
	keepFirst = 2000
	keepLast  = 8000
)

func timed[T any](e Event, of T) Timed[T] {
	return Timed[T]{At: e.At, Scenario: e.Scenario, When: e.When, Of: of}
}

// add takes over an event of the cluster.
func (c *Cluster) add(e Event) {
	if c.First == 0 || e.At < c.First {
		c.First = e.At
	}
	c.Last = max(c.Last, e.At)
	switch {
	case e.Kind == KindWorld && e.World != nil:
		c.World = e.World
	case e.Kind == KindPod && e.Pod != nil:
		c.Pods = append(c.Pods, timed(e, *e.Pod))
	case e.Kind == KindStep:
		c.Steps = append(c.Steps, timed(e, e.Step))
	case e.Kind == KindFault && e.Fault != nil:
		c.Faults = append(c.Faults, timed(e, *e.Fault))
	case e.Kind == KindProcess && e.Process != nil:
		c.Processes = append(c.Processes, timed(e, *e.Process))
	case e.Kind == KindLease && e.Lease != nil:
		c.Leases = append(c.Leases, timed(e, *e.Lease))
	case e.Kind == KindLog && e.Log != nil:
		c.log(timed(e, *e.Log))
	case e.Kind == KindSeries:
		for _, s := range e.Series {
			c.series(s)
		}
	case e.Kind == KindProbe && e.Probe != nil:
		c.Probe, c.Closed = e.Probe, e.At
	case e.Kind == KindState:
		c.Moments = append(c.Moments, timed(e, e.State))
	case e.Kind == KindTrace && e.Trace != nil:
		c.Traces = append(c.Traces, timed(e, *e.Trace))
	}
}

// log keeps the first and the last lines.
func (c *Cluster) log(l Timed[Log]) {
	c.Logs = append(c.Logs, l)
	if over := len(c.Logs) - keepFirst - 2*keepLast; over >= 0 {
		c.Logs = slices.Delete(c.Logs, keepFirst, keepFirst+keepLast)
		c.Dropped += keepLast
	}
}

func (c *Cluster) series(s Series) {
	for _, p := range c.Pairs {
		if p.From == s.From && p.To == s.To {
			p.Lines = append(p.Lines, s)
			return
		}
	}
	c.Pairs = append(c.Pairs, &PairSeries{From: s.From, To: s.To, Lines: []Series{s}})
}

// Span is one injection of a fault, from its beginning to its heal.
type Span struct {
	// Of says what was injected: its first event.
	Of Fault
	// Injected is when breaking began, Proved when the effect was seen and Healed when it was undone; each is 0
	// if that did not happen. Error says what went wrong.
	Injected, Proved, Healed int64
	Error                    string
}

// Is reports whether a verdict means this injection of the cluster with an id.
func (s Span) Is(i Injection, cluster string) bool {
	if s.Of.N > 0 {
		return s.Of.N == i.N && i.Cluster == cluster
	}
	return s.Of.Name == i.Name
}

// Spans pairs the events of each injection, by its number. In a record of before injections had numbers, a
// heal ends the fault of its name that was injected first.
func (c *Cluster) Spans() []Span {
	var spans []Span
	find := func(f Fault, open func(Span) bool) *Span {
		for i := range spans {
			of := spans[i].Of
			if f.N > 0 && of.N == f.N || f.N == 0 && of.Name == f.Name && open(spans[i]) {
				return &spans[i]
			}
		}
		return nil
	}
	for _, f := range c.Faults {
		switch f.Of.Phase {
		case FaultInjecting:
			spans = append(spans, Span{Of: f.Of, Injected: f.At})
		case FaultProved, FaultUnproved:
			s := find(f.Of, func(s Span) bool { return s.Injected > 0 && s.Proved == 0 && s.Error == "" })
			if s == nil {
				spans = append(spans, Span{Of: f.Of})
				s = &spans[len(spans)-1]
			}
			s.Error = f.Of.Error
			if f.Of.Phase == FaultProved {
				s.Proved = f.At
			} else if s.Error == "" {
				s.Error = FaultUnproved
			}
		case FaultHealed:
			if s := find(f.Of, func(s Span) bool { return s.Healed == 0 }); s != nil {
				s.Healed = f.At
				if f.Of.Error != "" {
					s.Error = f.Of.Error
				}
			}
		}
	}
	return spans
}

// etcdProcess is what the processes of etcd are called.
const etcdProcess = "etcd"

// Machines lists the machines of the cluster, by name. A record of before roles were recorded tells which
// machines are etcd's by the processes that ran there.
func (c *Cluster) Machines() []Machine {
	if c.World == nil {
		return nil
	}
	all := slices.Clone(c.World.Machines)
	if len(all) == 0 {
		for name, addr := range c.World.Nodes {
			m := Machine{Name: name, Addr: addr, Role: RoleNode}
			if slices.ContainsFunc(c.Processes, func(p Timed[Process]) bool {
				return p.Of.Machine == name && p.Of.Name == etcdProcess
			}) {
				m.Role = RoleEtcd
			}
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	return all
}
