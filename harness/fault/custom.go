package fault

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
)

// Done is anything done on one machine, for what only one scenario breaks.
type Done struct {
	// ID, if set, is the fault's id instead of Custom: one of its own, or that of a row of the table for a
	// scenario that brings such a fault about by hand. Component is what it breaks; the kernel unless set.
	ID        string
	Component Component
	Node      string
	// What says what is done, such as "uplink without an address".
	What string
	// Do does it; it is called inside the machine's namespaces. An error is a missing proof.
	Do func(*node.Machine) error
	// Undo, if set, is the heal.
	Undo func(*node.Machine) error
}

// Name implements Fault.
func (f Done) Name() string { return f.What + " on " + f.Node }

// Identity implements Fault.
func (f Done) Identity() Identity {
	i := at(cmp.Or(f.ID, Custom), f.Node).with("what", f.What)
	i.Component = cmp.Or(f.Component, ComponentKernel)
	return i
}

// Inject implements Fault. The proof is that Do has no error.
func (f Done) Inject(_ context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	if f.Undo != nil {
		w.OnHeal(func(context.Context) error {
			return machine.Do(func() error { return f.Undo(machine) })
		})
	}
	if err := machine.Do(func() error { return f.Do(machine) }); err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}

// ConfigChanged puts another network configuration in place of the one in etcd; the heal puts the old one
// back. Without Config it is the one in etcd with another MTU.
type ConfigChanged struct{ Config string }

// Name implements Fault.
func (ConfigChanged) Name() string { return "network configuration changed" }

// Identity implements Fault.
func (f ConfigChanged) Identity() Identity { return at("config-change").with("config", f.Config) }

// Inject implements Fault. The proof is that etcd had another one.
func (f ConfigChanged) Inject(ctx context.Context, w *Injection) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		key := w.EtcdPrefix() + flannelkeys.Config
		before, err := c.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("read the network configuration: %w", err)
		}
		if len(before.Kvs) == 0 || string(before.Kvs[0].Value) == f.Config {
			return fmt.Errorf("%w: %w", ErrNotProven, errors.New("there was none, or the same"))
		}
		old, config := string(before.Kvs[0].Value), f.Config
		if config == "" {
			if config, err = withAnotherMTU(old); err != nil {
				return fmt.Errorf("%w: change the network configuration: %w", ErrNotProven, err)
			}
		}
		w.OnHeal(func(ctx context.Context) error {
			return withEtcd(ctx, w, func(c *clientv3.Client) error {
				_, err := c.Put(ctx, key, old)
				return err
			})
		})
		if _, err := c.Put(ctx, key, config); err != nil {
			return fmt.Errorf("put the network configuration: %w", err)
		}
		return nil
	})
}

// withAnotherMTU is a network configuration with an MTU in its backend that none has by itself.
func withAnotherMTU(config string) (string, error) {
	var all map[string]any
	if err := json.Unmarshal([]byte(config), &all); err != nil {
		return "", err
	}
	backend, _ := all["Backend"].(map[string]any)
	if backend == nil {
		backend = map[string]any{}
	}
	all["Backend"], backend["MTU"] = backend, 1300
	raw, err := json.Marshal(all)
	return string(raw), err
}
