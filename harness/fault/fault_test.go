package fault

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestHealsRunLastInFirstOut(t *testing.T) {
	var s HealStack
	var order []string
	push := func(name string, err error) {
		s.Push(name, func(context.Context) error {
			order = append(order, name)
			return err
		})
	}
	push("first", nil)
	push("second", errors.New("stuck"))
	s.Push("third", func(context.Context) error { panic("boom") })
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
	if err := s.Heal(t.Context()); err != nil || len(s.Names()) != 0 {
		t.Errorf("healed twice: %v, %v", err, s.Names())
	}
}

func TestHealThatNeedsAnotherIsRunAfterIt(t *testing.T) {
	var s HealStack
	off := true
	s.Push("off", func(context.Context) error {
		off = false
		return nil
	})
	s.Push("file", func(context.Context) error {
		if off {
			return errors.New("it is switched off")
		}
		return nil
	})
	if err := s.HealOne(t.Context(), "file"); err != nil || strings.Join(s.Names(), " ") != "off file" {
		t.Errorf("%v, left %v", err, s.Names())
	}
	if err := s.HealOne(t.Context(), "off"); err != nil || len(s.Names()) != 0 {
		t.Errorf("%v, left %v", err, s.Names())
	}
	s.Push("hopeless", func(context.Context) error { return errors.New("never") })
	if err := s.HealOne(t.Context(), "hopeless"); err == nil || len(s.Names()) != 0 {
		t.Errorf("%v, left %v", err, s.Names())
	}
}

func TestOneIsHealedAndTheOthersStay(t *testing.T) {
	var s HealStack
	healed := ""
	for _, name := range []string{"a", "b", "c"} {
		s.Push(name, func(context.Context) error {
			healed += name
			return nil
		})
	}
	if err := s.HealOne(t.Context(), "b"); err != nil || healed != "b" || strings.Join(s.Names(), "") != "ac" {
		t.Errorf("%v, healed %q, left %v", err, healed, s.Names())
	}
	if err := s.HealOne(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "it is not broken") {
		t.Errorf("healed what was not broken: %v", err)
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
