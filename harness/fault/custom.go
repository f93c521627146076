package fault

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
)

// Done is anything done on one machine, for what only one scenario breaks.
type Done struct {
	Node string
	// What says what is done, such as "uplink without an address".
	What string
	// Do does it; it is called inside the machine's namespaces. An error is a missing proof.
	Do func(*node.Machine) error
	// Undo, if set, is the heal.
	Undo func(*node.Machine) error
}

// Name implements Fault.
func (f Done) Name() string { return f.What + " on " + f.Node }

// Inject implements Fault. The proof is that Do has no error.
func (f Done) Inject(_ context.Context, w World) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	if f.Undo != nil {
		w.OnHeal(f.Name(), func(context.Context) error {
			return machine.Do(func() error { return f.Undo(machine) })
		})
	}
	if err := machine.Do(func() error { return f.Do(machine) }); err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}

// ConfigChanged puts another network configuration in place of the one in etcd; the heal puts the old one
// back.
type ConfigChanged struct{ Config string }

// Name implements Fault.
func (ConfigChanged) Name() string { return "network configuration changed" }

// Inject implements Fault. The proof is that etcd had another one.
func (f ConfigChanged) Inject(ctx context.Context, w World) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		key := w.EtcdPrefix() + flannelkeys.Config
		before, err := c.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("read the network configuration: %w", err)
		}
		if len(before.Kvs) == 0 || string(before.Kvs[0].Value) == f.Config {
			return fmt.Errorf("%w: %w", ErrNotProven, errors.New("there was none, or the same"))
		}
		old := string(before.Kvs[0].Value)
		w.OnHeal(f.Name(), func(ctx context.Context) error {
			return withEtcd(ctx, w, func(c *clientv3.Client) error {
				_, err := c.Put(ctx, key, old)
				return err
			})
		})
		if _, err := c.Put(ctx, key, f.Config); err != nil {
			return fmt.Errorf("put the network configuration: %w", err)
		}
		return nil
	})
}
