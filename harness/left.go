package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/invariant"
	"github.com/nemesh/nemesh/harness/node"
)

// agentState tells what a node's agent has done since the cluster was built.
func (c *Cluster) agentState(n *Node) invariant.Agent {
	follows := driver.Lacks(n.driver, driver.FeatureOwners) == nil
	a := invariant.Agent{Told: true, Records: follows, Age: time.Since(c.born)}
	if p, err := c.Agent(n.Name()); err == nil {
		a.Running, a.Told = p.Running(), p.Told()
		if !a.Running {
			a.End = "exit status 0"
			if err := p.ExitErr(); err != nil {
				a.End = err.Error()
			}
			if last := p.Tail(1); len(last) > 0 {
				a.End += "; its last line: " + last[0]
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.output[n.Name()]; o != nil {
		a.Lines, a.Panics, a.Races = o.lines, append([]string(nil), o.panics...), append([]string(nil), o.races...)
	}
	return a
}

// traces takes the marks by which what is left of the cluster will be known. It never returns nil.
func (c *Cluster) traces() (*invariant.Traces, error) {
	t := invariant.NewTraces(c.dir, c.links)
	var machines []*node.Machine
	for _, n := range c.nodes {
		machines = append(machines, n.Machine)
	}
	if c.store != nil {
		machines = append(machines, c.store.Machine())
	}
	var errs []error
	for _, m := range machines {
		if m.On() {
			errs = append(errs, t.HoldMachine(m))
		}
	}
	for _, p := range c.Pods() {
		if p.NetNS.IsOpen() {
			errs = append(errs, t.Hold("pod "+p.Name, int(p.NetNS)))
		}
	}
	if c.fabric != nil {
		errs = append(errs, t.Hold("the switch", int(c.fabric.NetNS())))
	}
	return t, errors.Join(errs...)
}

// checkLeft waits until nothing of the closed cluster is left in the sandbox, and else says what is.
func (c *Cluster) checkLeft(ctx context.Context, t *invariant.Traces) error {
	v, err := invariant.Find(invariant.NothingLeft)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leftWithin)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := t.Left()
		if err != nil {
			return err
		}
		r := invariant.Judge(v, invariant.Snapshot{Left: left}, c.waivers())
		over := ctx.Err() != nil
		if r.OK || over {
			c.writeInvariant(r)
			if r.Failed() {
				return fmt.Errorf("%s: %s", r.ID, strings.Join(r.Violations, "; "))
			}
			return nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
