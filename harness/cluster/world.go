package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/underlay"
	"github.com/nemesh/nemesh/reports/record"
)

// A Cluster is the World that faults work on.
var _ fault.World = (*Cluster)(nil)

// EtcdPrefix implements fault.World.
func (c *Cluster) EtcdPrefix() string { return driver.PrefixOf(c.opts.Agent) }

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

// Inject applies faults one after another and proves each. The error wraps fault.ErrNotProven when one could
// not be proved, and a *driver.LacksError when it is about something that an agent does not have.
func (c *Cluster) Inject(ctx context.Context, faults ...fault.Fault) error {
	for _, f := range faults {
		if err := c.Lacks(fault.Needs(f)...); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		if limited, ok := f.(fault.Limited); ok {
			if err := limited.Available(c); err != nil {
				return fmt.Errorf("%w: %s: %w", fault.ErrNotProven, f.Name(), err)
			}
		}
		if len(c.heals.Injected()) == 0 {
			c.moment(record.Before)
		}
		how := ""
		if m, ok := f.(fault.Mechanical); ok {
			how = m.Mechanism()
		}
		in := c.heals.Begin(c, f)
		c.noteFault(in, record.FaultInjecting, how, nil)
		if err := f.Inject(ctx, in); err != nil {
			c.noteFault(in, record.FaultUnproved, how, err)
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		c.noteFault(in, record.FaultProved, how, nil)
	}
	return nil
}

func (c *Cluster) noteFault(in *fault.Injection, phase, mechanism string, err error) {
	is := fault.Identify(in.Fault)
	f := &record.Fault{
		Name: in.Fault.Name(), Phase: phase, Mechanism: mechanism, N: in.N, ID: is.ID,
		Component: string(is.Component), Promise: is.Promise, Nodes: is.Nodes, Params: is.Params,
	}
	if err != nil {
		f.Error = err.Error()
	}
	c.record.Write(record.Event{Kind: record.KindFault, Fault: f})
}

// Heal undoes all faults, the latest first, and returns the moment at which the last was undone.
func (c *Cluster) Heal(ctx context.Context) (time.Time, error) {
	before := c.heals.Active()
	if len(before) > 0 {
		c.moment(record.During)
	}
	err := c.heals.Heal(ctx)
	return c.noteHealed(before, err), err
}

// HealOne undoes one fault, as often as it was injected, and leaves the others.
func (c *Cluster) HealOne(ctx context.Context, f fault.Fault) (time.Time, error) {
	before := c.heals.Active()
	c.moment(record.During)
	err := c.heals.HealOne(ctx, f)
	return c.noteHealed(before, err), err
}

// noteHealed notes, the latest first, which of the faults that were active before are no more. One whose
// heal has to wait for another's is noted when it is really healed.
func (c *Cluster) noteHealed(before []*fault.Injection, err error) time.Time {
	now := time.Now()
	active := c.heals.Active()
	for _, in := range slices.Backward(before) {
		if !slices.Contains(active, in) {
			c.noteFault(in, record.FaultHealed, "", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.healed = now
	return now
}

// Summary is what a verdict says of a cluster.
type Summary struct {
	// Broke names the faults that were injected and Active those that are not healed, in order; Injections has
	// both for programs.
	Broke, Active []string
	Injections    []record.Injection
	Report        probe.Report
	// Healed is when the last fault was healed; zero if none was.
	Healed time.Time
}

// Summary sums up what was broken and measured so far, or until the cluster was closed.
func (c *Cluster) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Summary{Healed: c.healed}
	active := c.heals.Active()
	for _, in := range active {
		s.Active = append(s.Active, in.Fault.Name())
	}
	for _, in := range c.heals.Injected() {
		is := fault.Identify(in.Fault)
		s.Broke = append(s.Broke, in.Fault.Name())
		s.Injections = append(s.Injections, record.Injection{
			Cluster: c.ID(), N: in.N, Name: in.Fault.Name(), ID: is.ID, Component: string(is.Component),
			Active: slices.Contains(active, in),
		})
	}
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
	return c.closed
}

// Mend undoes what is still broken, and records nothing: the scenario is over.
func (c *Cluster) Mend(ctx context.Context) error { return c.heals.Heal(ctx) }
