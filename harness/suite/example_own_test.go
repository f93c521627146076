package suite_test

import (
	"context"
	"fmt"

	"github.com/nemesh/nemesh/harness/suite"
)

// cut is a fault of one's own.
type cut struct{ Node string }

func (f cut) Name() string { return "cut " + f.Node }

func (f cut) Identity() suite.Identity { return suite.Identity{ID: "cut", Nodes: []string{f.Node}} }

func (f cut) Inject(_ context.Context, w *suite.Injection) error {
	w.OnHeal(func(context.Context) error { return nil })
	return fmt.Errorf("%w: it is an example", suite.ErrNotProven)
}

// A fault, an invariant and an agent of one's own are registered before the scenarios run.
func Example_own() {
	suite.RegisterFault(suite.FaultEntry{
		ID:        "cut",
		About:     "a node is cut off",
		Component: suite.ComponentNode,
		Promise:   "its pods are lost, no others",
		Make:      func(p suite.Place) (suite.Fault, error) { return cut{p.Node}, nil },
	})
	suite.RegisterInvariant(suite.Invariant{
		ID: "three-nodes", Statement: "There are three nodes.",
		Check: func(_ context.Context, c *suite.Cluster) (wrong []string, err error) {
			if n := len(c.Nodes()); n != 3 {
				wrong = append(wrong, fmt.Sprintf("there are %d nodes", n))
			}
			return wrong, nil
		},
	})
	suite.RegisterDriver("sleeper", sleeper{})
}

// program is the agent of the driver sleeper: a function of the suite, started as a program.
var program = suite.Part("sleeper", func() int { select {} })

// sleeper drives an agent that does nothing.
type sleeper struct{ suite.Ours }

func (sleeper) Name() string                      { return "sleeper" }
func (sleeper) Command(suite.Spec) suite.Command  { return program }
func (sleeper) CNI() (conf []byte, dirs []string) { return nil, []string{suite.PluginDir()} }
