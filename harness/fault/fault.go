// Package fault breaks a world on purpose. A fault is a value; injecting it registers how it is healed
// before anything is done, and proves that it took effect before any assertion starts. A fault that cannot
// be proved makes a scenario not proven, which is never a pass.
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/underlay"
)

// ErrNotProven says that a fault was applied and its effect could not be shown.
var ErrNotProven = errors.New("the fault is not proven")

// World is what a fault works on. A cluster is one.
type World interface {
	// Etcd is the first member of the control plane, which knows the others, and EtcdPrefix where the overlay
	// keeps its keys.
	Etcd() *etcd.Member
	EtcdPrefix() string
	Switch() *underlay.Switch
	// Machine returns a node's machine. PowerOff switches it off, its pods included.
	Machine(name string) (*node.Machine, error)
	PowerOff(ctx context.Context, name string) error
	// Agent returns a node's agent; StartAgent starts one where none runs, StartAgentAs starts what change
	// makes of its command.
	Agent(name string) (*node.Process, error)
	StartAgent(ctx context.Context, name string) error
	StartAgentAs(ctx context.Context, name string, change func(node.Command) node.Command) error
	// Device is the name of the overlay's device, SubnetFile the file that the agent leaves for CNI, StateDir
	// the folder of what outlives it, "" if there is none.
	Device() string
	SubnetFile() string
	StateDir() string
	// Nodes lists the names of the nodes, PodsOn the pods of one.
	Nodes() []string
	PodsOn(node string) []*pod.Pod
	// AddPod makes a pod by CNI ADD, DelPod takes it down, ForgetPod drops one that is gone without DEL.
	AddPod(ctx context.Context, node, name string) (*pod.Pod, error)
	DelPod(ctx context.Context, p *pod.Pod) error
	ForgetPod(p *pod.Pod)
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

// Mechanical is a Fault that the kernel brings about in one of several ways.
type Mechanical interface {
	Fault
	// Mechanism says which it is on the running kernel, such as "netem".
	Mechanism() string
}

// HealStack undoes faults, the latest first. Faults overlap and may be healed in any order, so a heal may
// be in need of what another fault has broken, such as a file to be put back on a machine that is switched
// off: a heal that fails stays on the stack and is run again after every other that succeeds. The zero
// value is ready.
type HealStack struct {
	mu    sync.Mutex
	heals []heal
}

type heal struct {
	name    string
	run     func(context.Context) error
	waiting bool // it was asked for and has failed
}

// Push registers what undoes the fault called name.
func (s *HealStack) Push(name string, run func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heals = append(s.heals, heal{name: name, run: run})
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

// Heal undoes everything, the latest first. It goes on after an error or a panic, tries again what failed as
// long as anything else succeeds, and says whose heal failed.
func (s *HealStack) Heal(ctx context.Context) error {
	return s.heal(ctx, func(string) bool { return true })
}

// HealOne undoes the faults called name and leaves the others. What cannot be undone before another fault is
// healed is not an error: it is undone then, and in Names until it is.
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

// heal runs the chosen heals and those that wait. Errors count only when nothing is left that they could
// wait for.
func (s *HealStack) heal(ctx context.Context, which func(name string) bool) error {
	s.mu.Lock()
	for i := range s.heals {
		s.heals[i].waiting = s.heals[i].waiting || which(s.heals[i].name)
	}
	s.mu.Unlock()
	for {
		progress, err := s.round(ctx)
		if progress && err != nil {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil && s.others() {
			return nil
		}
		if err != nil {
			s.heals = nil
		}
		return err
	}
}

// others reports whether anything is broken that nobody has asked to heal yet; s.mu is held.
func (s *HealStack) others() bool {
	for _, h := range s.heals {
		if !h.waiting {
			return true
		}
	}
	return false
}

// round runs every heal that waits once, the latest first, and takes those that succeed off the stack.
func (s *HealStack) round(ctx context.Context) (progress bool, err error) {
	s.mu.Lock()
	all := s.heals
	s.heals = nil
	s.mu.Unlock()
	var errs []error
	var left []heal
	for _, h := range slices.Backward(all) {
		if h.waiting {
			failed := h.safely(ctx)
			if failed == nil {
				progress = true
				continue
			}
			errs = append(errs, failed)
		}
		left = append(left, h)
	}
	slices.Reverse(left)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heals = append(left, s.heals...)
	return progress, errors.Join(errs...)
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
