// Package wait is the harness's one wait loop.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Until calls holds at once, and then at each interval, until it returns nil or an error of GiveUp, or ctx
// ends. If ctx ends, the error wraps the last error of holds, which says what was missing, and that of ctx.
func Until(ctx context.Context, every time.Duration, holds func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		err := holds(ctx)
		var final *finalError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final):
			return final.error
		case ctx.Err() == nil || last == nil:
			last = err // what is said once ctx has ended is mostly about that
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", last, ctx.Err())
		case <-tick.C:
		}
	}
}

// Within is Until with a time limit.
func Within(ctx context.Context, within, every time.Duration, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return Until(ctx, every, holds)
}

// GiveUp marks an error after which waiting is of no use, such as the end of a process. Until returns the
// error itself.
func GiveUp(err error) error { return &finalError{err} }

type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }
