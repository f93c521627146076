// Package fault breaks a world on purpose. A fault is a value; injecting it registers how it is healed
// before anything is done, and proves that it took effect before any assertion starts. A fault that cannot
// be proved makes a scenario not proven, which is never a pass.
package fault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/underlay"
)

// ErrNotProven says that a fault was applied and its effect could not be shown.
var ErrNotProven = errors.New("the fault is not proven")

// World is what a fault works on. A cluster is one.
type World interface {
	// Etcd is the control plane's member, and EtcdPrefix where the overlay keeps its keys.
	Etcd() *etcd.Member
	EtcdPrefix() string
	Switch() *underlay.Switch
	// Machine returns a node's machine.
	Machine(name string) (*node.Machine, error)
	// Agent returns a node's agent; StartAgent starts one where none runs.
	Agent(name string) (*node.Process, error)
	StartAgent(ctx context.Context, name string) error
	// Device is the name of the overlay's device, SubnetFile the file that the agent leaves for CNI.
	Device() string
	SubnetFile() string
	// Nodes lists the names of the nodes.
	Nodes() []string
	// OnHeal registers what undoes a fault.
	OnHeal(name string, heal func(context.Context) error)
}

// Fault is one way to break a world.
type Fault interface {
	// Name says what is broken, as a person would: "etcd stopped".
	Name() string
	// Inject registers the heal, breaks, and proves. The error wraps ErrNotProven when breaking went through
	// and cannot be shown.
	Inject(ctx context.Context, w World) error
}

// Limited is a Fault that not every machine can have.
type Limited interface {
	Fault
	// Available says what is missing, and what would bring it.
	Available(w World) error
}

// HealStack undoes faults, the latest first. The zero value is ready.
type HealStack struct {
	mu    sync.Mutex
	heals []heal
}

type heal struct {
	name string
	run  func(context.Context) error
}

// Push registers what undoes the fault called name.
func (s *HealStack) Push(name string, run func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heals = append(s.heals, heal{name, run})
}

// Names lists what is not healed yet, in the order of breaking.
func (s *HealStack) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, h := range s.heals {
		names = append(names, h.name)
	}
	return names
}

// Heal undoes everything, the latest first. It goes on after an error or a panic, and says whose heal
// failed.
func (s *HealStack) Heal(ctx context.Context) error {
	return s.heal(ctx, func(string) bool { return true })
}

// HealOne undoes the faults called name and leaves the others.
func (s *HealStack) HealOne(ctx context.Context, name string) error {
	found := false
	err := s.heal(ctx, func(n string) bool {
		found = found || n == name
		return n == name
	})
	if !found {
		return fmt.Errorf("heal %q: it is not broken; broken are %q", name, s.Names())
	}
	return err
}

func (s *HealStack) heal(ctx context.Context, which func(name string) bool) error {
	s.mu.Lock()
	var chosen, kept []heal
	for _, h := range s.heals {
		if which(h.name) {
			chosen = append(chosen, h)
		} else {
			kept = append(kept, h)
		}
	}
	s.heals = kept
	s.mu.Unlock()
	var errs []error
	for i := len(chosen) - 1; i >= 0; i-- {
		errs = append(errs, chosen[i].safely(ctx))
	}
	return errors.Join(errs...)
}

func (h heal) safely(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("heal %q: panic: %v", h.name, p)
		}
	}()
	if err := h.run(ctx); err != nil {
		return fmt.Errorf("heal %q: %w", h.name, err)
	}
	return nil
}

// proofWithin bounds how long a fault may take to show.
const proofWithin = 5 * time.Second

// prove waits until holds reports that the fault shows, and else returns ErrNotProven with what was
// expected.
func prove(
	ctx context.Context,
	within time.Duration,
	what string,
	holds func(context.Context) (bool, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := holds(ctx)
		if ok {
			return nil
		}
		if err != nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: expected within %s: %s", errors.Join(ErrNotProven, last), within, what)
		case <-tick.C:
		}
	}
}
