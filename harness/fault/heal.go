package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Injection is one injection of a fault, and the world that it works on. A fault that is injected twice has
// two.
type Injection struct {
	World
	// N counts the injections of a world, from 1.
	N int
	// Fault is what is injected.
	Fault Fault

	stack *HealStack
	whole *Injection // the one that this is a part of; nil if it is none
	part  string     // tells the parts of one injection apart
}

// OnHeal registers what undoes the fault, or one part of it. What is registered last is undone first.
func (i *Injection) OnHeal(heal func(context.Context) error) {
	for i.whole != nil {
		i = i.whole
	}
	i.stack.push(i, heal)
}

// Holder is a name that no other injection of the world has, for what is held and let go by name, such as
// frames that a switch drops.
func (i *Injection) Holder() string { return fmt.Sprintf("%s #%d%s", i.Fault.Name(), i.N, i.part) }

// partOf is the same injection for the nth of several faults.
func (i *Injection) partOf(n int, f Fault) *Injection {
	return &Injection{
		World: i.World, N: i.N, Fault: f, stack: i.stack, whole: i,
		part: fmt.Sprintf("%s.%d", i.part, n+1),
	}
}

// HealStack numbers the faults that are injected into a world, and undoes them, the latest first. Faults
// overlap and may be healed in any order, so a heal may be in need of what another fault has broken, such as
// a file to be put back on a machine that is switched off: a heal that fails stays on the stack and is run
// again after every other that succeeds. The zero value is ready.
type HealStack struct {
	mu       sync.Mutex
	injected []*Injection
	heals    []heal
}

type heal struct {
	of      *Injection
	run     func(context.Context) error
	waiting bool // it was asked for and has failed
}

// Begin numbers the next injection, which its fault's Inject is called with.
func (s *HealStack) Begin(w World, f Fault) *Injection {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := &Injection{World: w, N: len(s.injected) + 1, Fault: f, stack: s}
	s.injected = append(s.injected, i)
	return i
}

func (s *HealStack) push(of *Injection, run func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heals = append(s.heals, heal{of: of, run: run})
}

// Injected lists all injections, in order.
func (s *HealStack) Injected() []*Injection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.injected)
}

// Active lists what is not healed yet, in the order of breaking.
func (s *HealStack) Active() []*Injection {
	s.mu.Lock()
	defer s.mu.Unlock()
	var active []*Injection
	for _, h := range s.heals {
		if !slices.Contains(active, h.of) {
			active = append(active, h.of)
		}
	}
	return active
}

// Heal undoes everything, the latest first. It goes on after an error or a panic, tries again what failed as
// long as anything else succeeds, and says whose heal failed.
func (s *HealStack) Heal(ctx context.Context) error {
	return s.heal(ctx, func(*Injection) bool { return true })
}

// HealOne undoes a fault, as often as it was injected, and leaves the others. It is known by its identity:
// id, nodes and parameters. What cannot be undone before another fault is healed is not an error: it is
// undone then, and is Active until it is.
func (s *HealStack) HealOne(ctx context.Context, f Fault) error {
	wanted, found := Identify(f), false
	err := s.heal(ctx, func(i *Injection) bool {
		same := Identify(i.Fault).same(wanted)
		found = found || same
		return same
	})
	if !found {
		var broken []string
		for _, i := range s.Active() {
			broken = append(broken, i.Fault.Name())
		}
		return fmt.Errorf("heal %q: it is not broken; broken are %q", f.Name(), broken)
	}
	return err
}

// heal runs the chosen heals and those that wait. Errors count only when nothing is left that they could
// wait for.
func (s *HealStack) heal(ctx context.Context, which func(*Injection) bool) error {
	s.mu.Lock()
	for i := range s.heals {
		s.heals[i].waiting = s.heals[i].waiting || which(s.heals[i].of)
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
	name := h.of.Fault.Name()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("heal %q: panic: %v", name, p)
		}
	}()
	if err := h.run(ctx); err != nil {
		return fmt.Errorf("heal %q: %w", name, err)
	}
	return nil
}
