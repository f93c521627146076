package fault

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// imaginary is a fault without an effect.
type imaginary struct{ name, id, node string }

func (f imaginary) Name() string { return f.name }

func (f imaginary) Identity() Identity { return Identity{ID: f.id, Nodes: []string{f.node}} }

func (imaginary) Inject(context.Context, *Injection) error { return nil }

// broken injects an imaginary fault with a heal.
func (s *HealStack) broken(name string, heal func(context.Context) error) *Injection {
	i := s.Begin(nil, imaginary{name: name, id: name})
	i.OnHeal(heal)
	return i
}

// names are those of the faults that are not healed.
func (s *HealStack) names() string {
	var names []string
	for _, i := range s.Active() {
		names = append(names, i.Fault.Name())
	}
	return strings.Join(names, " ")
}

func TestHealsRunLastInFirstOut(t *testing.T) {
	var s HealStack
	var order []string
	push := func(name string, err error) {
		s.broken(name, func(context.Context) error {
			order = append(order, name)
			return err
		})
	}
	push("first", nil)
	push("second", errors.New("stuck"))
	s.broken("third", func(context.Context) error { panic("boom") })
	push("fourth", nil)
	err := s.Heal(t.Context())
	// What failed is tried again after each round in which anything succeeded.
	if strings.Join(order, " ") != "fourth second first second" {
		t.Errorf("order %v", order)
	}
	for _, want := range []string{`heal "second": stuck`, `heal "third": panic: boom`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
	if err := s.Heal(t.Context()); err != nil || len(s.Active()) != 0 {
		t.Errorf("healed twice: %v, %v", err, s.names())
	}
}

func TestHealThatNeedsAnotherIsRunAfterIt(t *testing.T) {
	var s HealStack
	isOff := true
	off := s.broken("off", func(context.Context) error {
		isOff = false
		return nil
	})
	file := s.broken("file", func(context.Context) error {
		if isOff {
			return errors.New("it is switched off")
		}
		return nil
	})
	if err := s.HealOne(t.Context(), file.Fault); err != nil || s.names() != "off file" {
		t.Errorf("%v, left %v", err, s.names())
	}
	if err := s.HealOne(t.Context(), off.Fault); err != nil || s.names() != "" {
		t.Errorf("%v, left %v", err, s.names())
	}
	hopeless := s.broken("hopeless", func(context.Context) error { return errors.New("never") })
	if err := s.HealOne(t.Context(), hopeless.Fault); err == nil || s.names() != "" {
		t.Errorf("%v, left %v", err, s.names())
	}
}

func TestOneIsHealedAndTheOthersStay(t *testing.T) {
	var s HealStack
	healed := ""
	for _, name := range []string{"a", "b", "c"} {
		s.broken(name, func(context.Context) error {
			healed += name
			return nil
		})
	}
	b := imaginary{name: "b", id: "b"}
	if err := s.HealOne(t.Context(), b); err != nil || healed != "b" || s.names() != "a c" {
		t.Errorf("%v, healed %q, left %v", err, healed, s.names())
	}
	if err := s.HealOne(t.Context(), b); err == nil || !strings.Contains(err.Error(), "it is not broken") {
		t.Errorf("healed what was not broken: %v", err)
	}
}

// Faults are told apart by what they are and not by what they are called, and injections by their number.
func TestFaultsOfOneNameAreNotConfused(t *testing.T) {
	var s HealStack
	healed := ""
	inject := func(what string, f imaginary) *Injection {
		i := s.Begin(nil, f)
		i.OnHeal(func(context.Context) error {
			healed += what
			return nil
		})
		return i
	}
	one, two := imaginary{"broken", "one", "node01"}, imaginary{"broken", "two", "node01"}
	elsewhere := imaginary{"broken", "one", "node02"}
	first, again := inject("1", one), inject("2", one)
	inject("3", two)
	inject("4", elsewhere)
	if first.N != 1 || again.N != 2 || first.Holder() == again.Holder() || len(s.Injected()) != 4 {
		t.Errorf("%+v and %+v of %d", first, again, len(s.Injected()))
	}
	if err := s.HealOne(t.Context(), one); err != nil || healed != "21" || len(s.Active()) != 2 {
		t.Errorf("healed %q, left %d (%v)", healed, len(s.Active()), err)
	}
	if err := s.HealOne(t.Context(), elsewhere); err != nil || healed != "214" {
		t.Errorf("healed %q (%v)", healed, err)
	}
}

func TestProofThatDoesNotComeIsNotProven(t *testing.T) {
	err := prove(t.Context(), 20*time.Millisecond, "pigs fly", func(context.Context) (bool, error) {
		return false, errors.New("no wings")
	})
	if !errors.Is(err, ErrNotProven) || !strings.Contains(err.Error(), "pigs fly") ||
		!strings.Contains(err.Error(), "no wings") {
		t.Error(err)
	}
}
