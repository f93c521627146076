package wait_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/wait"
)

func TestUntil(t *testing.T) {
	notYet, broken := errors.New("not yet"), errors.New("broken")
	for name, c := range map[string]struct {
		within  time.Duration
		answers []error // one a call, the last for ever
		want    []error // all of which the error must be
		calls   int     // at least
	}{
		"at once":           {time.Minute, []error{nil}, nil, 1},
		"at the third call": {time.Minute, []error{notYet, notYet, nil}, nil, 3},
		"never": {
			20 * time.Millisecond,
			[]error{notYet},
			[]error{notYet, context.DeadlineExceeded},
			2,
		},
		"given up":                  {time.Minute, []error{notYet, wait.GiveUp(broken)}, []error{broken}, 2},
		"asked once without a time": {-1, []error{notYet}, []error{notYet, context.DeadlineExceeded}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := wait.Within(t.Context(), c.within, time.Millisecond, func(context.Context) error {
				calls++
				return c.answers[min(calls, len(c.answers))-1]
			})
			if calls < c.calls || name == "given up" && calls != c.calls || (err == nil) != (c.want == nil) {
				t.Errorf("%v after %d calls", err, calls)
			}
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("%v is not %v", err, want)
				}
			}
		})
	}
}

// What a condition says because its context has ended hides nothing that it said before.
func TestTheLastWordIsOfTheCondition(t *testing.T) {
	missing := errors.New("no route to node02")
	err := wait.Within(t.Context(), 10*time.Millisecond, time.Millisecond, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return missing
	})
	if !errors.Is(err, missing) {
		t.Errorf("%v", err)
	}
}
