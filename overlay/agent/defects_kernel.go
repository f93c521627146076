//go:build defects

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/nemesh/nemesh/overlay/kernel"
	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

func onDemandNeighbours(a *Agent, h *hooks) {
	var mu sync.Mutex
	var full plan.State
	h.plans = append(h.plans, func(s plan.State) plan.State {
		mu.Lock()
		defer mu.Unlock()
		full = s
		return plan.OnDemand(s)
	})
	h.run = append(h.run, func(ctx context.Context) {
		kernel.AnswerMisses(ctx, a.log, func() plan.State {
			mu.Lock()
			defer mu.Unlock()
			return full
		})
	})
}

// newDeviceAtStart removes the devices and forgets their MACs.
func newDeviceAtStart(a *Agent, h *hooks) {
	h.start = append(h.start, func(*Agent) error {
		a.state.VtepMAC, a.state.VtepMAC6 = lease.MAC{}, lease.MAC{}
		return kernel.RemoveDevices()
	})
	h.views = append(h.views, func(v lease.View) (lease.View, bool) {
		if a.own.Subnet.IsZero() { // what peers were told is forgotten too
			leases := append([]lease.Lease(nil), v.Leases...)
			for i := range leases {
				if leases[i].Attrs.PublicIP == a.opts.PublicIP {
					leases[i].Attrs.BackendData = nil
				}
			}
			v.Leases = leases
		}
		return v, true
	})
}

// noCleanUpAtStart takes what the kernel holds for wanted.
func noCleanUpAtStart(a *Agent, h *hooks) {
	var first *plan.State
	h.plans = append(h.plans, func(s plan.State) plan.State {
		if first == nil {
			there, err := kernel.Leftovers(s)
			if err != nil {
				a.log.Error("look for leftovers", "err", err)
			}
			first = &there
		}
		return s.And(*first)
	})
}

func peersNeverDropped(_ *Agent, h *hooks) {
	var before plan.State
	h.plans = append(h.plans, func(s plan.State) plan.State {
		before = s.And(before)
		return before
	})
}

func panicAtExit(a *Agent, h *hooks) {
	h.run = append(h.run, func(ctx context.Context) {
		<-ctx.Done()
		if _, err := a.watcher.Seen(); err != nil {
			panic("close of closed channel")
		}
	})
}

func uplinkOnce(_ *Agent, h *hooks) {
	h.start = append(h.start, func(a *Agent) error {
		if _, err := a.findUplink(); err != nil {
			a.log.Error("failed to find an interface to use", "err", err)
			return errQuit
		}
		return nil
	})
}

func foreignAddressFatal(_ *Agent, h *hooks) {
	h.start = append(h.start, func(*Agent) error {
		n, err := kernel.AddressesOf(plan.DeviceName(1, false))
		if err == nil && n > 1 {
			err = fmt.Errorf("link has incompatible addresses: %d instead of 1", n)
		}
		return err
	})
}

func keepMTU(_ *Agent, h *hooks) {
	h.plans = append(h.plans, func(s plan.State) plan.State {
		s.Devices = append([]plan.Device(nil), s.Devices...)
		for i, d := range s.Devices {
			if mtu, ok := kernel.MTUOf(d.Name); ok {
				s.Devices[i].MTU = mtu
			}
		}
		return s
	})
}

func rulesOnce(_ *Agent, h *hooks) {
	written := false
	h.plans = append(h.plans, func(s plan.State) plan.State {
		if written {
			s.Rules = nil
		}
		written = true
		return s
	})
}

// rulesAppended adds the rules to those that are there, once a start.
func rulesAppended(a *Agent, h *hooks) {
	appended := false
	h.plans = append(h.plans, func(s plan.State) plan.State {
		if !appended {
			appended = true
			if err := kernel.AppendRules(s); err != nil {
				a.log.Error("append rules", "err", err)
			}
		}
		s.Rules = nil
		return s
	})
}

func rulesOfOtherSubnet(_ *Agent, h *hooks) {
	h.plans = append(h.plans, func(s plan.State) plan.State {
		s.Rules = append([]plan.Rules(nil), s.Rules...)
		for i, r := range s.Rules {
			s.Rules[i].Subnet = netip.PrefixFrom(r.Network.Addr(), r.Subnet.Bits())
		}
		return s
	})
}
