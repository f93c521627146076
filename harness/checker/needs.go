package checker

import (
	"context"
	"fmt"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
)

// needs are the features without which an agent cannot be asked about an invariant; the others hold of any
// agent.
func needs(id string) []driver.Feature {
	switch id {
	case "kernel-holds-what-is-explained", "agent-makes-progress":
		return []driver.Feature{driver.FeatureKeys}
	case "vtep-mac-agrees":
		return []driver.Feature{driver.FeatureKeys, driver.FeatureDevice}
	case "one-lease-per-node", "leases-do-not-overlap", "pod-address-in-lease":
		return []driver.Feature{driver.FeatureLeases}
	case "subnet-file-equals-lease", "cni0-equals-subnet":
		return []driver.Feature{driver.FeatureLeases, driver.FeatureSubnetFile}
	case "own-subnet-stays-local":
		return []driver.Feature{driver.FeatureLeases, driver.FeatureDevice}
	default:
		return nil
	}
}

// unasked returns the ids of the invariants that cannot be asked of the cluster's agents, each with the
// reason.
func (k *Checker) unasked() map[string]string {
	why := map[string]string{}
	for _, v := range All() {
		if err := k.c.Lacks(needs(v.ID)...); err != nil {
			why[v.ID] = err.Error()
		}
	}
	for _, v := range k.live {
		if err := k.c.Lacks(v.Needs...); err != nil {
			why[v.ID] = err.Error()
		}
	}
	return why
}

// Live is an invariant of a suite's own, which looks at the running world instead of a snapshot.
type Live struct {
	ID string
	// Needs are the features without which an agent cannot be asked.
	Needs []driver.Feature
	// Look returns what violates it, as sentences; none if it holds. The error says what kept it from looking.
	Look func(ctx context.Context) ([]string, error)
}

// lookWithin bounds the looks of a suite's own invariants, all together.
const lookWithin = 5 * time.Second

// look judges the world by the suite's own invariants.
func (k *Checker) look(ctx context.Context, s Snapshot) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var results []Result
	waived := k.waivers()
	for _, v := range k.live {
		if why, ok := s.Unasked[v.ID]; ok {
			results = append(results, Result{ID: v.ID, Waived: true, Why: why})
			continue
		}
		violations, err := v.Look(ctx)
		if err != nil {
			return nil, fmt.Errorf("invariant %s: %w", v.ID, err)
		}
		r := Result{ID: v.ID, OK: len(violations) == 0, Violations: violations}
		r.Why, r.Waived = waived[v.ID]
		results = append(results, r)
	}
	return results, nil
}
