package fault

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// withEtcd runs fn with a client of the world's etcd.
func withEtcd(ctx context.Context, w World, fn func(*clientv3.Client) error) error {
	client, err := w.Etcd().Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return fn(client)
}

// leaseOf finds the key and etcd lease of a node; it must have one.
func leaseOf(ctx context.Context, c *clientv3.Client, w World, node string) (string, clientv3.LeaseID, error) {
	machine, err := w.Machine(node)
	if err != nil {
		return "", 0, err
	}
	key, err := LeaseKey(ctx, c, w.EtcdPrefix(), machine.Addr().String())
	if err != nil {
		return "", 0, err
	}
	resp, err := c.Get(ctx, key)
	if err != nil {
		return "", 0, fmt.Errorf("read %s: %w", key, err)
	}
	if key == "" || len(resp.Kvs) == 0 {
		return "", 0, fmt.Errorf("%w: %s has no lease", ErrNotProven, node)
	}
	return key, clientv3.LeaseID(resp.Kvs[0].Lease), nil
}

// LeaseRevoked revokes the etcd lease that a node's subnet hangs on, as an operator or an expiry does.
type LeaseRevoked struct{ Node string }

// Name implements Fault.
func (f LeaseRevoked) Name() string { return "lease of " + f.Node + " revoked" }

// Inject implements Fault. The proof is etcd's answer.
func (f LeaseRevoked) Inject(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		_, id, err := leaseOf(ctx, c, w, f.Node)
		if err != nil {
			return err
		}
		_, err = c.Revoke(ctx, id)
		return err
	})
}

// LeaseDeleted deletes the key of a node's lease.
type LeaseDeleted struct{ Node string }

// Name implements Fault.
func (f LeaseDeleted) Name() string { return "lease key of " + f.Node + " deleted" }

// Inject implements Fault. The proof is that etcd deleted one key.
func (f LeaseDeleted) Inject(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		key, _, err := leaseOf(ctx, c, w, f.Node)
		if err != nil {
			return err
		}
		return deleteOne(ctx, c, key)
	})
}

// KeyDeleted deletes one key under the overlay's prefix, such as "owners/10.5.3.0-24".
type KeyDeleted struct{ Key string }

// Name implements Fault.
func (f KeyDeleted) Name() string { return "key " + f.Key + " deleted" }

// Inject implements Fault. The proof is that etcd deleted one key.
func (f KeyDeleted) Inject(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		return deleteOne(ctx, c, w.EtcdPrefix()+"/"+f.Key)
	})
}

func deleteOne(ctx context.Context, c *clientv3.Client, key string) error {
	resp, err := c.Delete(ctx, key)
	if err == nil && resp.Deleted != 1 {
		err = fmt.Errorf("%w: %d keys deleted at %s", ErrNotProven, resp.Deleted, key)
	}
	return err
}

// LeaseOverwritten writes nonsense over a node's lease, by hand and without TTL.
type LeaseOverwritten struct{ Node string }

// Name implements Fault.
func (f LeaseOverwritten) Name() string { return "lease key of " + f.Node + " overwritten" }

// Inject implements Fault. The proof is etcd's answer.
func (f LeaseOverwritten) Inject(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		key, _, err := leaseOf(ctx, c, w, f.Node)
		if err != nil {
			return err
		}
		_, err = c.Put(ctx, key, "oops")
		return err
	})
}

// KeysPut puts keys under the overlay's prefix, such as "subnets/hello"; the heal deletes them.
type KeysPut struct {
	What string
	Keys map[string]string
}

// Name implements Fault.
func (f KeysPut) Name() string { return f.What + " put into etcd" }

// Inject implements Fault. The proof is etcd's answer to each.
func (f KeysPut) Inject(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		for _, key := range slices.Sorted(maps.Keys(f.Keys)) {
			path := w.EtcdPrefix() + "/" + key
			w.OnHeal(f.Name(), func(ctx context.Context) error {
				return withEtcd(ctx, w, func(c *clientv3.Client) error {
					_, err := c.Delete(ctx, path)
					return err
				})
			})
			if _, err := c.Put(ctx, path, f.Keys[key]); err != nil {
				return fmt.Errorf("put %s: %w", key, err)
			}
		}
		return nil
	})
}

// EtcdCompacted discards etcd's history up to now, so that a watch that fell behind cannot go on.
type EtcdCompacted struct{}

// Name implements Fault.
func (EtcdCompacted) Name() string { return "etcd compacted" }

// Inject implements Fault. The proof is that a watch from the first revision is refused.
func (EtcdCompacted) Inject(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		now, err := c.Get(ctx, "now")
		if err != nil {
			return err
		}
		if _, err := c.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			return err
		}
		_, err = c.Get(ctx, "now", clientv3.WithRev(1))
		if err == nil || !strings.Contains(err.Error(), "compacted") {
			return fmt.Errorf("%w: revision 1 can still be read (%w)", ErrNotProven, err)
		}
		return nil
	})
}

// EtcdRestored ends etcd and puts an older copy of its data in place (etcd.Member.Save), so that its revision
// goes backwards; the heal starts it if Inject did not get that far.
type EtcdRestored struct{ Copy string }

// Name implements Fault.
func (EtcdRestored) Name() string { return "etcd restored from an older snapshot" }

// Inject implements Fault. The proof is that the revision is lower than before.
func (f EtcdRestored) Inject(ctx context.Context, w World) error {
	// Agents write again as soon as etcd is back, so the history that is lost is made long enough to tell.
	if err := makeHistory(ctx, w); err != nil {
		return err
	}
	before, err := revision(ctx, w)
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
	after, err := revision(ctx, w)
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

func revision(ctx context.Context, w World) (n int64, err error) {
	err = withEtcd(ctx, w, func(c *clientv3.Client) error {
		resp, err := c.Get(ctx, "now")
		if err == nil {
			n = resp.Header.Revision
		}
		return err
	})
	return n, err
}
