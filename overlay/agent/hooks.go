package agent

import (
	"context"
	"errors"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// hooks is where a build with defects changes what the agent does. The normal build has none.
type hooks struct {
	// start runs before anything is touched; an error ends the agent.
	start []func(*Agent) error
	// views may change what etcd says, or keep it from the agent.
	views []func(lease.View) (lease.View, bool)
	// plans may replace a plan before the kernel gets it.
	plans []func(plan.State) plan.State
	// lost takes the place of getting the lease anew when it is not held any more; raced is called when another
	// took the chosen subnet first, and exhausted when none is free.
	lost, raced, exhausted func()
	// renew takes the place of a renewal; its result is Agent.renew's.
	renew func(context.Context) bool
	// blind has a lease count as held whatever etcd says.
	blind bool
	// forgetful has an address that the uplink loses count as gone for good.
	forgetful bool
	// run is started beside the agent.
	run []func(context.Context)
}

// errQuit has the agent end as if all were well.
var errQuit = errors.New("quit")

func (h hooks) begin(a *Agent) error {
	for _, f := range h.start {
		if err := f(a); err != nil {
			return err
		}
	}
	return nil
}

func (h hooks) view(v lease.View) (lease.View, bool) {
	for _, f := range h.views {
		var ok bool
		if v, ok = f(v); !ok {
			return v, false
		}
	}
	return v, true
}

func (h hooks) plan(s plan.State) plan.State {
	for _, f := range h.plans {
		s = f(s)
	}
	return s
}

func call(f func()) {
	if f != nil {
		f()
	}
}
