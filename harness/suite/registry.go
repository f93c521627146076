package suite

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/nemesh/nemesh/harness/checker"
)

// Invariant is a statement of your own that must hold when a scenario has ended well: its faults are healed,
// its pods and agents still there.
type Invariant struct {
	// ID is its stable name, small letters and hyphens, by which a scenario waives it (Cluster.Waive).
	ID string
	// Statement says in one sentence what holds.
	Statement string
	// Needs are features of the agent without which nothing can be asked; the invariant is then waived.
	Needs []Feature
	// Check returns what violates it, a sentence each; none if it holds. It only looks. It is called again, for
	// 10 s at most, until it finds nothing. An error says what kept it from looking, and fails the scenario.
	Check func(ctx context.Context, c *Cluster) ([]string, error)
}

// invariants are those that have been registered.
type invariants struct {
	mu  sync.Mutex
	all []Invariant
}

var registered invariants

// invariantID is what an invariant may be called.
var invariantID = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// RegisterInvariant has an invariant checked after every scenario of the suite. It is for init functions and
// variables: an id that is taken, or is none, is a mistake in the program and panics.
func RegisterInvariant(v Invariant) {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	_, err := checker.Find(v.ID)
	taken := err == nil || slices.ContainsFunc(registered.all, func(o Invariant) bool { return o.ID == v.ID })
	switch {
	case taken:
		panic(fmt.Sprintf("suite: there is an invariant %q already: give yours another id", v.ID))
	case !invariantID.MatchString(v.ID):
		panic(
			fmt.Sprintf("suite: %q is no id for an invariant: small letters, digits and hyphens make one, such as "+
				"routes-are-whole", v.ID),
		)
	case v.Statement == "" || v.Check == nil:
		panic(fmt.Sprintf("suite: invariant %q needs a Statement and a Check", v.ID))
	}
	registered.all = append(registered.all, v)
}

// list returns what has been registered, in order.
func (r *invariants) list() []Invariant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// of makes the checker's invariants of a cluster.
func (r *invariants) of(c *Cluster) []checker.Live {
	var all []checker.Live
	for _, v := range r.list() {
		all = append(all, checker.Live{
			ID: v.ID, Needs: v.Needs,
			Look: func(ctx context.Context) ([]string, error) { return v.Check(ctx, c) },
		})
	}
	return all
}
