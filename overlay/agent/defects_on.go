//go:build defects

package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/nemesh/nemesh/overlay/defect"
	"github.com/nemesh/nemesh/overlay/kernel"
	"github.com/nemesh/nemesh/overlay/plan"
)

// newHooks gives the agent the behaviour of the defects it was told to have.
func newHooks(defects defect.Set, log *slog.Logger) hooks {
	if !defects.Has(defect.OnDemandNeighbours) {
		return hooks{}
	}
	var mu sync.Mutex
	var full plan.State
	return hooks{
		plan: func(s plan.State) plan.State {
			mu.Lock()
			defer mu.Unlock()
			full = s
			return plan.OnDemand(s)
		},
		run: func(ctx context.Context) {
			kernel.AnswerMisses(ctx, log, func() plan.State {
				mu.Lock()
				defer mu.Unlock()
				return full
			})
		},
	}
}
