package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/flannelkeys"
)

// withEtcd runs fn with a client of the world's etcd. When etcd does not answer, as under another fault, the
// client is closed after a while, which ends fn, and the error says so.
func withEtcd(ctx context.Context, w World, fn func(*clientv3.Client) error) error {
	client, err := w.Etcd().Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	result := make(chan error, 1)
	go func() { result <- fn(client) }()
	late := time.NewTimer(answerWithin)
	defer late.Stop()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = fmt.Errorf("it did not within %s", answerWithin)
	}
	client.Close()
	return fmt.Errorf("%w: etcd must answer for this: %w", ErrNotProven, errors.Join(err, <-result))
}

// answerWithin bounds what is asked of etcd.
const answerWithin = 10 * time.Second

// leaseOf finds the lease of a node; it must have one.
func leaseOf(ctx context.Context, c *clientv3.Client, w World, node string) (flannelkeys.Lease, error) {
	machine, err := w.Machine(node)
	if err != nil {
		return flannelkeys.Lease{}, err
	}
	l, ok, err := leaseBy(ctx, c, w, machine.Addr())
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s has no lease", ErrNotProven, node)
	}
	return l, err
}

// leaseBy finds the lease with a public address, if there is one. Its time to live is not read.
func leaseBy(ctx context.Context, c *clientv3.Client, w World, ip netip.Addr,
) (found flannelkeys.Lease, ok bool, err error) {
	dir := w.EtcdPrefix() + flannelkeys.Subnets
	resp, err := c.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return flannelkeys.Lease{}, false, fmt.Errorf("list leases: %w", err)
	}
	for _, kv := range resp.Kvs {
		l, err := flannelkeys.ParseLease(strings.TrimPrefix(string(kv.Key), dir), string(kv.Value))
		if err == nil && l.PublicIP == ip { // what is no lease is nobody's
			l.ID = kv.Lease
			return l, true, nil
		}
	}
	return flannelkeys.Lease{}, false, nil
}

// LeaseRevoked revokes the etcd lease that a node's subnet hangs on, as an operator or an expiry does.
type LeaseRevoked struct{ Node string }

// Name implements Fault.
func (f LeaseRevoked) Name() string { return "lease of " + f.Node + " revoked" }

// Identity implements Fault.
func (f LeaseRevoked) Identity() Identity { return at("lease-revoke", f.Node) }

// Inject implements Fault. The proof is etcd's answer.
func (f LeaseRevoked) Inject(ctx context.Context, w *Injection) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		l, err := leaseOf(ctx, c, w, f.Node)
		if err != nil {
			return err
		}
		if _, err = c.Revoke(ctx, clientv3.LeaseID(l.ID)); errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = fmt.Errorf("%w: %w", ErrNotProven, err) // overwritten without TTL, or just gone
		}
		return err
	})
}

// LeaseDeleted deletes the key of a node's lease.
type LeaseDeleted struct{ Node string }

// Name implements Fault.
func (f LeaseDeleted) Name() string { return "lease key of " + f.Node + " deleted" }

// Identity implements Fault.
func (f LeaseDeleted) Identity() Identity { return at("lease-delete", f.Node) }

// Inject implements Fault. The proof is that etcd deleted one key.
func (f LeaseDeleted) Inject(ctx context.Context, w *Injection) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		l, err := leaseOf(ctx, c, w, f.Node)
		if err != nil {
			return err
		}
		return deleteOne(ctx, c, w.EtcdPrefix()+flannelkeys.Subnets+l.Key)
	})
}

// KeyDeleted deletes one key under the overlay's prefix, such as "owners/10.5.3.0-24".
type KeyDeleted struct{ Key string }

// Name implements Fault.
func (f KeyDeleted) Name() string { return "key " + f.Key + " deleted" }

// Identity implements Fault.
func (f KeyDeleted) Identity() Identity { return at("key-delete").with("key", f.Key) }

// Inject implements Fault. The proof is that etcd deleted one key.
func (f KeyDeleted) Inject(ctx context.Context, w *Injection) error {
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

// Identity implements Fault.
func (f LeaseOverwritten) Identity() Identity { return at("lease-overwrite", f.Node) }

// Inject implements Fault. The proof is etcd's answer.
func (f LeaseOverwritten) Inject(ctx context.Context, w *Injection) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		l, err := leaseOf(ctx, c, w, f.Node)
		if err != nil {
			return err
		}
		_, err = c.Put(ctx, w.EtcdPrefix()+flannelkeys.Subnets+l.Key, "oops")
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

// Identity implements Fault.
func (f KeysPut) Identity() Identity {
	keys := slices.Sorted(maps.Keys(f.Keys))
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = f.Keys[k]
	}
	return at("key-put").with("key", strings.Join(keys, " ")).with("value", strings.Join(values, " "))
}

// Inject implements Fault. The proof is etcd's answer to each.
func (f KeysPut) Inject(ctx context.Context, w *Injection) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		for _, key := range slices.Sorted(maps.Keys(f.Keys)) {
			path := w.EtcdPrefix() + "/" + key
			w.OnHeal(func(ctx context.Context) error {
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
