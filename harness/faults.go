package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/underlay"
	"github.com/nemesh/nemesh/reports/record"
)

// A Cluster is the World that faults work on.
var _ fault.World = (*Cluster)(nil)

// Etcd implements fault.World.
func (c *Cluster) Etcd() *etcd.Member { return c.store }

// EtcdPrefix implements fault.World.
func (c *Cluster) EtcdPrefix() string { return etcdPrefix }

// Switch implements fault.World.
func (c *Cluster) Switch() *underlay.Switch { return c.fabric }

// Machine implements fault.World.
func (c *Cluster) Machine(name string) (*node.Machine, error) {
	n, err := c.Node(name)
	if err != nil {
		return nil, err
	}
	return n.Machine, nil
}

// Device implements fault.World.
func (c *Cluster) Device() string { return c.opts.Agent.Device(c.opts.VNI) }

// SubnetFile implements fault.World.
func (c *Cluster) SubnetFile() string { return c.opts.Agent.SubnetFile() }

// StateDir implements fault.World; "" if the agent keeps nothing.
func (c *Cluster) StateDir() string {
	if d, ok := c.opts.Agent.(interface{ StateDir() string }); ok {
		return d.StateDir()
	}
	return ""
}

// Nodes implements fault.World.
func (c *Cluster) Nodes() []string {
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.Name())
	}
	return names
}

// OnHeal implements fault.World.
func (c *Cluster) OnHeal(name string, heal func(context.Context) error) { c.heals.Push(name, heal) }

// Inject applies faults one after another and proves each. The error wraps fault.ErrNotProven when one could
// not be proved.
func (c *Cluster) Inject(ctx context.Context, faults ...fault.Fault) error {
	for _, f := range faults {
		if limited, ok := f.(fault.Limited); ok {
			if err := limited.Available(c); err != nil {
				return fmt.Errorf("%w: %s: %w", fault.ErrNotProven, f.Name(), err)
			}
		}
		how := ""
		if m, ok := f.(fault.Mechanical); ok {
			how = m.Mechanism()
		}
		c.noteFault(f.Name(), record.FaultInjecting, how, nil)
		c.mu.Lock()
		c.broke = append(c.broke, f.Name())
		c.mu.Unlock()
		if err := f.Inject(ctx, c); err != nil {
			c.noteFault(f.Name(), record.FaultUnproved, how, err)
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		c.noteFault(f.Name(), record.FaultProved, how, nil)
	}
	return nil
}

func (c *Cluster) noteFault(name, phase, mechanism string, err error) {
	f := &record.Fault{Name: name, Phase: phase, Mechanism: mechanism}
	if err != nil {
		f.Error = err.Error()
	}
	c.record.Write(record.Event{Kind: record.KindFault, Fault: f})
}

// Heal undoes all faults, the latest first, and returns the moment at which the last was undone.
func (c *Cluster) Heal(ctx context.Context) (time.Time, error) {
	before := c.heals.Names()
	err := c.heals.Heal(ctx)
	return c.noteHealed(before, err), err
}

// HealOne undoes one fault and leaves the others.
func (c *Cluster) HealOne(ctx context.Context, f fault.Fault) (time.Time, error) {
	before := c.heals.Names()
	err := c.heals.HealOne(ctx, f.Name())
	return c.noteHealed(before, err), err
}

// noteHealed notes, the latest first, which of the faults that were active before are no more. One whose
// heal has to wait for another's is noted when it is really healed.
func (c *Cluster) noteHealed(before []string, err error) time.Time {
	now := time.Now()
	active := c.heals.Names()
	slices.Reverse(before)
	for _, name := range slices.Compact(before) {
		if !slices.Contains(active, name) {
			c.noteFault(name, record.FaultHealed, "", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.healed = now
	return now
}

// Summary is what a verdict says of a cluster.
type Summary struct {
	// Broke lists the faults that were injected and Active those that are not healed, in order.
	Broke, Active []string
	Report        probe.Report
	// Healed is when the last fault was healed; zero if none was.
	Healed time.Time
}

// Summary sums up what was broken and measured so far, or until the cluster was closed.
func (c *Cluster) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Summary{Broke: slices.Clone(c.broke), Active: slices.Compact(c.heals.Names()), Healed: c.healed}
	if c.final != nil {
		s.Report = *c.final
	} else {
		s.Report = c.mesh.Report()
	}
	return s
}

// Closed reports whether the cluster has been torn down.
func (c *Cluster) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.final != nil
}

func (c *Cluster) writeProbe() {
	report := c.mesh.Report()
	p := &record.Probe{Skipped: report.Skipped}
	for _, r := range report.Pairs {
		pair := record.Pair{From: r.From, To: r.To, Sent: r.Sent, Lost: r.Lost, RTTMin: int64(r.RTT.Min),
			RTTMean: int64(r.RTT.Mean()), RTTMax: int64(r.RTT.Max)}
		for _, o := range r.Outages {
			pair.Outages = append(pair.Outages, record.Outage{Start: record.At(o.Start), Length: int64(o.Length),
				Lost: o.Lost, Ended: o.Ended})
		}
		p.Pairs = append(p.Pairs, pair)
	}
	for _, e := range report.Errors {
		p.Errors = append(p.Errors, record.ICMPError{At: e.At, Reporter: e.Reporter.String(), Type: e.Type,
			Code: e.Code, Source: e.Source.String(), Destination: e.Destination.String(), Count: e.Count})
	}
	c.record.Write(record.Event{Kind: record.KindProbe, Probe: p})
}

// WriteState records what the kernels and etcd hold now, for a reader who wants to know why something
// failed.
func (c *Cluster) WriteState(ctx context.Context) error {
	var states []record.State
	var errs []error
	for _, n := range c.nodes {
		s, err := observe.Take(n.NetNS())
		errs = append(errs, err)
		for _, part := range []struct {
			what  string
			lines []string
		}{
			{"links", s.Links}, {"addresses", s.Addresses}, {"routes", s.Routes}, {"neighbours", s.Neighbours},
			{"fdb", s.FDB},
		} {
			states = append(states, record.State{Where: n.Name(), What: part.what, Lines: part.lines})
		}
	}
	leases, err := c.leaseLines(ctx)
	states = append(states, record.State{Where: etcdMachine, What: "leases", Lines: leases})
	c.record.Write(record.Event{Kind: record.KindState, State: states})
	return errors.Join(append(errs, err)...)
}

func (c *Cluster) leaseLines(ctx context.Context) ([]string, error) {
	if !slices.ContainsFunc(c.store.Members(), (*etcd.Member).Running) {
		return []string{"etcd is not running"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	leases, err := c.Leases(ctx)
	var lines []string
	for _, l := range leases {
		lines = append(lines, fmt.Sprintf("%s %s ttl %s", l.Key, l.Value, l.TTL))
	}
	return lines, err
}
