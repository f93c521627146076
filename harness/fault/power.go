package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
)

// NodePowerOff switches a node off: processes, pods, links and /run are gone, its disk is kept. The heal
// switches it on, starts the agent, and makes the pods anew as a container runtime would: DEL, then ADD.
type NodePowerOff struct{ Node string }

// Name implements Fault.
func (f NodePowerOff) Name() string { return f.Node + " switched off" }

// Identity implements Fault.
func (f NodePowerOff) Identity() Identity { return at("node-power-off", f.Node) }

// Inject implements Fault. The proof is that nothing can be done on the node any more.
func (f NodePowerOff) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	pods := w.PodsOn(f.Node)
	w.OnHeal(func(ctx context.Context) error { return bringBack(ctx, w, machine, &pods) })
	if err := w.PowerOff(ctx, f.Node); err != nil {
		return err
	}
	if err := machine.Do(func() error { return nil }); err == nil {
		return fmt.Errorf("%w: %s still works", ErrNotProven, f.Node)
	}
	return nil
}

// NodeReboot switches a node off and on. The heal starts the agent, and makes the pods anew.
type NodeReboot struct{ Node string }

// Name implements Fault.
func (f NodeReboot) Name() string { return f.Node + " booted anew" }

// Identity implements Fault.
func (f NodeReboot) Identity() Identity { return at("node-reboot", f.Node) }

// Inject implements Fault. The proof is that the node works and nothing of before runs or is there.
func (f NodeReboot) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	if !machine.On() {
		return fmt.Errorf("%w: %s is switched off", ErrNotProven, f.Node)
	}
	pods := w.PodsOn(f.Node)
	w.OnHeal(func(ctx context.Context) error { return bringBack(ctx, w, machine, &pods) })
	if err := w.PowerOff(ctx, f.Node); err != nil {
		return err
	}
	if err := machine.PowerOn(ctx); err != nil {
		return err
	}
	links, err := machine.Netlink().LinkList()
	if err != nil || len(links) != 2 || len(machine.Processes()) > 0 {
		return fmt.Errorf(
			"%w: %s has %d links and %d processes after its boot (%w)",
			ErrNotProven,
			f.Node,
			len(links),
			len(machine.Processes()),
			err,
		)
	}
	return nil
}

// bringBack switches a machine on if it is off, starts its agent and makes its pods anew. What is done is
// taken off the list, so that it can be called again.
func bringBack(ctx context.Context, w World, machine *node.Machine, pods *[]*pod.Pod) error {
	if !machine.On() {
		if err := machine.PowerOn(ctx); err != nil {
			return err
		}
	}
	if err := w.StartAgent(ctx, machine.Name()); err != nil {
		return err
	}
	return makeAnew(ctx, w, pods)
}

// makeAnew takes pods down that are gone and makes them again under the same names.
func makeAnew(ctx context.Context, w World, pods *[]*pod.Pod) error {
	for len(*pods) > 0 {
		p := (*pods)[0]
		if !p.Machine.On() {
			return fmt.Errorf("%s is switched off", p.Machine.Name())
		}
		if err := p.Del(ctx); err != nil {
			return err
		}
		if _, err := w.AddPod(ctx, p.Machine.Name(), p.Name); err != nil {
			return errors.Join(fmt.Errorf("make pod %s anew", p.Name), err)
		}
		*pods = (*pods)[1:]
	}
	return nil
}
