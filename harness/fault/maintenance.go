package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/underlay"
)

// EtcdCompacted discards etcd's history up to now, so that a watch that fell behind cannot go on.
type EtcdCompacted struct {
	// Since is the latest revision that a watch may have seen for which the compaction is meant (Revision).
	// History is made where there is too little of it: etcd still serves the revision after Since while that
	// is the one it is compacted to.
	Since int64
}

// Name implements Fault.
func (EtcdCompacted) Name() string { return "etcd compacted" }

// Identity implements Fault.
func (f EtcdCompacted) Identity() Identity {
	if f.Since == 0 {
		return at("etcd-compact")
	}
	return at("etcd-compact").with("since", f.Since)
}

// Inject implements Fault. The proof is that a watch that goes on after Since is told of the compaction.
func (f EtcdCompacted) Inject(ctx context.Context, w *Injection) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		now, err := c.Get(ctx, "now")
		if err != nil {
			return fmt.Errorf("ask etcd for its revision: %w", err)
		}
		at := now.Header.Revision
		for at < f.Since+2 {
			put, err := c.Put(ctx, "history", "made")
			if err != nil {
				return fmt.Errorf("make history: %w", err)
			}
			at = put.Header.Revision
		}
		_, err = c.Compact(ctx, at, clientv3.WithCompactPhysical())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // nobody wrote since the last compaction
			return fmt.Errorf("compact etcd to revision %d: %w", at, err)
		}
		ctx, cancel := context.WithTimeout(ctx, proofWithin)
		defer cancel()
		resp := <-c.Watch(ctx, w.EtcdPrefix()+"/", clientv3.WithPrefix(), clientv3.WithRev(f.Since+1))
		if err := resp.Err(); !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("%w: a watch from revision %d goes on after etcd was compacted to %d (%w)",
				ErrNotProven, f.Since+1, at, err)
		}
		return nil
	})
}

// EtcdRestored ends etcd and puts an older copy of its data in place (etcd.Member.Save), so that its
// revision goes backwards; the heal starts it if Inject did not get that far. Without a copy one is made
// first.
type EtcdRestored struct{ Copy string }

// Available implements Limited.
func (EtcdRestored) Available(w World) error {
	if n := len(w.Etcd().Members()); n > 1 {
		return fmt.Errorf("the data of one of %d members is not restored alone: use Options.EtcdMembers 1", n)
	}
	return nil
}

// Name implements Fault.
func (EtcdRestored) Name() string { return "etcd restored from an older snapshot" }

// Identity implements Fault.
func (f EtcdRestored) Identity() Identity { return at("etcd-restore").with("copy", f.Copy) }

// Inject implements Fault. The proof is that the revision is lower than before.
func (f EtcdRestored) Inject(ctx context.Context, w *Injection) error {
	w.OnHeal(w.Etcd().Start)
	if f.Copy == "" {
		saved, err := w.Etcd().Save(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(saved) }() // on the sandbox's tmpfs, which goes anyway
		f.Copy = saved
	}
	// Agents write again as soon as etcd is back, so the history that is lost is made long enough to tell.
	if err := makeHistory(ctx, w); err != nil {
		return err
	}
	before, err := Revision(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Etcd().Kill(ctx); err != nil {
		return err
	}
	if err := w.Etcd().Restore(f.Copy); err != nil {
		return err
	}
	if err := w.Etcd().Start(ctx); err != nil {
		return err
	}
	after, err := Revision(ctx, w)
	if err == nil && after >= before {
		err = fmt.Errorf("%w: revision %d came after %d", ErrNotProven, after, before)
	}
	return err
}

func makeHistory(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		for range 100 {
			if _, err := c.Put(ctx, "history", "made"); err != nil {
				return fmt.Errorf("make history: %w", err)
			}
		}
		return nil
	})
}

// Revision asks etcd for its revision: nobody has seen a later one.
func Revision(ctx context.Context, w World) (n int64, err error) {
	err = withEtcd(ctx, w, func(c *clientv3.Client) error {
		resp, err := c.Get(ctx, "now")
		if err == nil {
			n = resp.Header.Revision
		}
		return err
	})
	return n, err
}

// EtcdDefragmented gives the space of discarded revisions back; etcd does not answer meanwhile.
type EtcdDefragmented struct{}

// Name implements Fault.
func (EtcdDefragmented) Name() string { return "etcd defragmented" }

// Identity implements Fault.
func (EtcdDefragmented) Identity() Identity { return at("etcd-defragment") }

// Inject implements Fault. The proof is that the database on disk has shrunk, by what was put there and
// discarded for it.
func (EtcdDefragmented) Inject(ctx context.Context, w *Injection) error {
	err := withEtcd(ctx, w, func(c *clientv3.Client) error {
		var last int64
		for range 10 {
			resp, err := c.Put(ctx, "garbage", strings.Repeat("x", 200<<10))
			if err != nil {
				return fmt.Errorf("make something to discard: %w", err)
			}
			last = resp.Header.Revision
		}
		if _, err := c.Delete(ctx, "garbage"); err != nil {
			return err
		}
		_, err := c.Compact(ctx, last, clientv3.WithCompactPhysical())
		return err
	})
	if err != nil {
		return err
	}
	for _, m := range w.Etcd().Members() {
		before, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if err := m.Defragment(ctx); err != nil {
			return err
		}
		after, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if after.DbSize >= before.DbSize {
			return fmt.Errorf("%w: %s had %d bytes and has %d", ErrNotProven, m.Machine().Name(), before.DbSize,
				after.DbSize)
		}
	}
	return nil
}

// EtcdNoSpace raises the alarm of a full disk: etcd answers reads, and refuses what takes space.
type EtcdNoSpace struct{}

// Name implements Fault.
func (EtcdNoSpace) Name() string { return "etcd read-only by alarm NOSPACE" }

// Identity implements Fault.
func (EtcdNoSpace) Identity() Identity { return at("etcd-no-space") }

// Inject implements Fault. The proof is a write that is refused for it.
func (f EtcdNoSpace) Inject(ctx context.Context, w *Injection) error {
	within := func(ctx context.Context, do func(context.Context) error) error {
		return withEtcd(ctx, w, func(*clientv3.Client) error {
			ctx, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			return do(ctx)
		})
	}
	w.OnHeal(func(ctx context.Context) error { return within(ctx, w.Etcd().LowerAlarms) })
	if err := within(ctx, w.Etcd().RaiseNoSpace); err != nil {
		return err
	}
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		return prove(
			ctx,
			proofWithin,
			"a write is refused for want of space",
			func(ctx context.Context) (bool, error) {
				_, err := c.Put(ctx, "proof", "")
				return errors.Is(err, rpctypes.ErrNoSpace), err
			},
		)
	})
}

// EtcdSlow delays every request to etcd and every answer; what members say to each other is not delayed.
type EtcdSlow struct{ By time.Duration }

// Name implements Fault.
func (EtcdSlow) Name() string { return "etcd slow" }

// Identity implements Fault.
func (f EtcdSlow) Identity() Identity { return at("etcd-slow").with("by", f.By) }

func (f EtcdSlow) impairment() underlay.Impairment {
	return underlay.Impairment{Delay: f.By, TCPPort: etcd.ClientPort}
}

// Mechanism implements Mechanical.
func (f EtcdSlow) Mechanism() string { return underlay.Mechanism(f.impairment()) }

// Inject implements Fault. The proof is that connecting from a node takes as long as there and back.
func (f EtcdSlow) Inject(ctx context.Context, w *Injection) error {
	for _, m := range w.Etcd().Members() {
		port := m.Machine().Name()
		w.OnHeal(func(context.Context) error { return w.Switch().Repair(port, w.Holder()) })
		if err := w.Switch().Impair(port, w.Holder(), f.impairment()); err != nil {
			return err
		}
	}
	from := w.Nodes()[0]
	what := fmt.Sprintf("connecting to etcd from %s takes %s or longer", from, 2*f.By)
	return prove(ctx, proofWithin+4*f.By, what, func(ctx context.Context) (bool, error) {
		began := time.Now()
		err := dialWithin(ctx, w, w.Etcd(), from, 4*f.By+time.Second)
		return err == nil && time.Since(began) >= 2*f.By, err
	})
}
