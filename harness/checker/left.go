package checker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/wait"
)

// agentState tells what a node's agent has done since the cluster was built.
func (k *Checker) agentState(n *cluster.Node) Agent {
	follows := driver.Lacks(n.Driver(), driver.FeatureOwners) == nil
	a := Agent{Told: true, Records: follows, Age: time.Since(k.c.Born())}
	if p, err := k.c.Agent(n.Name()); err == nil {
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.output[n.Name()]; o != nil {
		a.Lines, a.Panics, a.Races = o.lines, append([]string(nil), o.panics...), append([]string(nil), o.races...)
	}
	return a
}

// traces takes the marks by which what is left of the cluster will be known. It never returns nil.
func (k *Checker) traces() (*Traces, error) {
	t := NewTraces(k.c.Dir(), k.links)
	var machines []*node.Machine
	for _, n := range k.c.AllNodes() {
		machines = append(machines, n.Machine)
	}
	machines = append(machines, k.c.Control().Machines()...)
	var errs []error
	for _, m := range machines {
		if m.On() {
			errs = append(errs, t.HoldMachine(m))
		}
	}
	for _, p := range k.c.Pods() {
		if p.NetNS.IsOpen() {
			errs = append(errs, t.Hold("pod "+p.Name, int(p.NetNS)))
		}
	}
	if k.c.Switch() != nil {
		errs = append(errs, t.Hold("the switch", int(k.c.Switch().NetNS())))
	}
	return t, errors.Join(errs...)
}

// Close closes the cluster, waits until nothing of it is left in the sandbox, and else says what is.
func (k *Checker) Close() error { return errors.Join(k.c.Close(), k.Left()) }

// Left waits until nothing of the closed cluster is left in the sandbox, and else says what is. Of a cluster
// that was closed because it could not be built it is to be asked too.
func (k *Checker) Left() error {
	if k.held == nil {
		return k.unheld
	}
	defer k.held.Close()
	return errors.Join(k.unheld, k.checkLeft(k.held))
}

// checkLeft waits until nothing of the closed cluster is left in the sandbox, and else says what is.
func (k *Checker) checkLeft(t *Traces) error {
	v, err := Find(NothingLeft)
	if err != nil {
		return err
	}
	var r Result
	var unread error
	_ = wait.Within(context.Background(), leftWithin, 5*time.Millisecond, func(context.Context) error {
		var left []string
		if left, unread = t.Left(); unread != nil {
			return wait.GiveUp(unread)
		}
		if r = Judge(v, Snapshot{Left: left}, k.waivers()); !r.OK {
			return errors.New(strings.Join(r.Violations, "; "))
		}
		return nil
	}) // what is left by then is judged
	if unread != nil {
		return unread
	}
	k.writeInvariant(r)
	if r.Failed() {
		return fmt.Errorf("%s: %s", r.ID, strings.Join(r.Violations, "; "))
	}
	return nil
}
