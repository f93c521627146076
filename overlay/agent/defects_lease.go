//go:build defects

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/nemesh/nemesh/overlay/lease"
)

func renewUnconditionally(a *Agent, h *hooks) {
	h.blind = true
	h.renew = func(ctx context.Context) bool {
		ctx, cancel := a.callTimeout(ctx)
		defer cancel()
		own, err := a.store.RenewUnconditionally(ctx, a.own, a.opts.LeaseTTL)
		if err == nil {
			a.own, a.renewed = own, time.Now()
		}
		return true
	}
}

func renewalGivesUp(a *Agent, h *hooks) {
	failed := false
	h.renew = func(ctx context.Context) bool {
		if failed {
			return true
		}
		ctx, cancel := a.callTimeout(ctx)
		defer cancel()
		err := a.store.Renew(ctx, a.own, a.record(), a.opts.LeaseTTL)
		if failed = err != nil; failed {
			a.log.Warn(renewFailed, "err", err)
		}
		a.renewed = time.Now()
		return true
	}
	h.blind = true
}

func dieOnLostRace(a *Agent, h *hooks) {
	h.raced = func() { a.failed <- errors.New("failed to acquire lease: subnet already exists") }
}

func noOwnerRecords(_ *Agent, h *hooks) {
	h.views = append(h.views, func(v lease.View) (lease.View, bool) {
		v.Owners = nil
		return v, true
	})
}

func reservationTaken(_ *Agent, h *hooks) {
	h.views = append(h.views, func(v lease.View) (lease.View, bool) {
		leases := append([]lease.Lease(nil), v.Leases...)
		for i := range leases {
			if leases[i].Reservation() {
				leases[i].ID = 1 // none that lives, so a new one is granted
			}
		}
		v.Leases = leases
		return v, true
	})
}

// watchNotRelisted hears nothing after the first list but what the first watch brings.
func watchNotRelisted(_ *Agent, h *hooks) {
	lists := 0
	h.views = append(h.views, dropFrom(func(v lease.View) bool {
		if v.Listed {
			lists++
		}
		return lists > 1
	}))
}

func rewindUnnoticed(_ *Agent, h *hooks) {
	h.views = append(h.views, dropFrom(func(v lease.View) bool { return v.Rewound }))
	h.blind = true
}

func rewindForgetsPeers(_ *Agent, h *hooks) {
	h.views = append(h.views, func(v lease.View) (lease.View, bool) {
		v.Rewound = false
		return v, true
	})
}

func garbageIsEmpty(a *Agent, h *hooks) {
	h.views = append(h.views, func(v lease.View) (lease.View, bool) {
		if len(v.Ignored) == 0 {
			return v, true
		}
		own, ok := v.At(a.own.Subnet)
		v.Leases, v.Owners = nil, nil
		if ok {
			v.Leases = []lease.Lease{own}
		}
		return v, true
	})
}

func bothFamiliesOrNone(a *Agent, h *hooks) {
	h.views = append(h.views, func(v lease.View) (lease.View, bool) {
		var whole []lease.Lease
		for _, l := range v.Leases {
			if !a.config.EnableIPv6 || l.Subnet.V6.IsValid() {
				whole = append(whole, l)
			}
		}
		v.Leases, v.Owners = whole, nil
		return v, true
	})
}

// busyWithoutEtcd asks again at once, and says so each time.
func busyWithoutEtcd(a *Agent, h *hooks) {
	h.run = append(h.run, func(ctx context.Context) {
		for ctx.Err() == nil {
			call, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, err := a.client.Get(call, "x")
			cancel()
			if err == nil {
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
				continue
			}
			a.log.Error("watch: etcd cluster is unavailable", "err", err)
			for began := time.Now(); time.Since(began) < 20*time.Millisecond; { // that is the defect
			}
		}
	})
}

func exitWithoutEtcd(_ *Agent, h *hooks) {
	h.start = append(h.start, func(a *Agent) error {
		ctx, cancel := context.WithTimeout(context.Background(), a.opts.EtcdTimeout)
		defer cancel()
		_, err := a.store.List(ctx)
		return err
	})
}

func exitWhenExhausted(a *Agent, h *hooks) {
	h.exhausted = func() { a.failed <- errors.New("failed to acquire lease: out of subnets") }
}
