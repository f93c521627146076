package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/etcd"
)

// several says that a world has fewer members than a fault of etcd's own cluster needs.
func several(w World) error {
	if n := len(w.Etcd().Members()); n < 3 {
		return fmt.Errorf("etcd has %d member: build the world with Options.EtcdMembers 3", n)
	}
	return nil
}

// EtcdLeaderMoved has etcd's leader hand over to another member.
type EtcdLeaderMoved struct{}

// Name implements Fault.
func (EtcdLeaderMoved) Name() string { return "etcd's leader changed" }

// Identity implements Fault.
func (EtcdLeaderMoved) Identity() Identity { return at("etcd-leader-change") }

// Available implements Limited.
func (EtcdLeaderMoved) Available(w World) error { return several(w) }

// Inject implements Fault. The proof is that another member leads.
func (EtcdLeaderMoved) Inject(ctx context.Context, w *Injection) error {
	leader, err := w.Etcd().Leader(ctx)
	if err != nil {
		return err
	}
	for _, to := range w.Etcd().Members() {
		if to == leader || !to.Running() {
			continue
		}
		if err := leader.MoveLeader(ctx, to); err != nil {
			return err
		}
		return prove(ctx, proofWithin, to.Machine().Name()+" leads", func(ctx context.Context) (bool, error) {
			now, err := to.Leader(ctx)
			return err == nil && now != leader, err
		})
	}
	return fmt.Errorf("%w: no other member runs", ErrNotProven)
}

// EtcdMemberLost kills one member of etcd, its leader; the heal starts it.
type EtcdMemberLost struct{}

// Name implements Fault.
func (EtcdMemberLost) Name() string { return "etcd lost its leading member" }

// Identity implements Fault.
func (EtcdMemberLost) Identity() Identity { return at("etcd-member-loss") }

// Available implements Limited.
func (EtcdMemberLost) Available(w World) error { return several(w) }

// Inject implements Fault. The proof is that the member is gone and the others agree on another leader.
func (f EtcdMemberLost) Inject(ctx context.Context, w *Injection) error {
	leader, err := w.Etcd().Leader(ctx)
	if err != nil {
		return err
	}
	w.OnHeal(leader.Start)
	if err := leader.Kill(ctx); err != nil {
		return err
	}
	return prove(ctx, electedWithin, "another member leads", func(ctx context.Context) (bool, error) {
		now, err := w.Etcd().Leader(ctx)
		return err == nil && now != leader, err
	})
}

// electedWithin bounds how long an election may take on a busy machine; it takes two time-outs of half a
// second.
const electedWithin = 20 * time.Second

// EtcdQuorumLost kills all members of etcd but one; the heal starts them.
type EtcdQuorumLost struct{}

// Name implements Fault.
func (EtcdQuorumLost) Name() string { return "etcd lost its quorum" }

// Identity implements Fault.
func (EtcdQuorumLost) Identity() Identity { return at("etcd-quorum-loss") }

// Available implements Limited.
func (EtcdQuorumLost) Available(w World) error { return several(w) }

// Inject implements Fault. The proof is a read that the member that is left does not answer.
func (f EtcdQuorumLost) Inject(ctx context.Context, w *Injection) error {
	members := w.Etcd().Members()
	w.OnHeal(func(ctx context.Context) error { return etcd.StartAll(ctx, members) })
	for _, m := range members[1:] {
		if err := m.Kill(ctx); err != nil {
			return err
		}
	}
	if !members[0].Running() {
		return fmt.Errorf("%w: no member was left before", ErrNotProven)
	}
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		return prove(ctx, proofWithin, "a read is not answered", func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := c.Get(ctx, "proof")
			return errors.Is(err, context.DeadlineExceeded), err
		})
	})
}
