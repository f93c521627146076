package fault

import (
	"context"
	"fmt"
)

// Several is faults one after another as one fault, the later ones needing those before.
type Several struct {
	// ID is its row's, or one of its own; Custom if it is not set. Component is what it breaks, for one
	// without a row.
	ID        string
	Component Component
	// What is its name, and Nodes and Params are those of its identity.
	What   string
	Nodes  []string
	Params map[string]string
	Faults []Fault
}

// Name implements Fault.
func (f Several) Name() string { return f.What }

// Identity implements Fault. One without an id is told from others by its name.
func (f Several) Identity() Identity {
	i := Identity{ID: f.ID, Component: f.Component, Nodes: f.Nodes, Params: f.Params}
	if f.ID == "" {
		i = i.with("what", f.What)
	}
	return i
}

// Available implements Limited: each of them must be.
func (f Several) Available(w World) error {
	for _, g := range f.Faults {
		if l, ok := g.(Limited); ok {
			if err := l.Available(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// Inject implements Fault. Each is proved before the next; their heals are those of the whole.
func (f Several) Inject(ctx context.Context, w *Injection) error {
	for n, g := range f.Faults {
		if err := g.Inject(ctx, w.partOf(n, g)); err != nil {
			return fmt.Errorf("%s: %w", g.Name(), err)
		}
	}
	return nil
}
