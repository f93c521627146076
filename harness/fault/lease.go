package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nemesh/nemesh/harness/flannelkeys"
)

// LeaseExpire waits until a node's lease has really expired. It breaks nothing itself: the node must have
// been kept from renewing before.
type LeaseExpire struct {
	Node string
	// Within bounds the wait; it must be longer than the lease.
	Within time.Duration
}

// Name implements Fault.
func (f LeaseExpire) Name() string { return "lease of " + f.Node + " expired" }

// Identity implements Fault.
func (f LeaseExpire) Identity() Identity { return at("lease-expire", f.Node).with("within", f.Within) }

// Inject implements Fault. The proof is that etcd holds no lease with the node's address any more.
func (f LeaseExpire) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	client, err := w.Etcd().Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return prove(ctx, f.Within, "etcd holds no lease of "+f.Node, func(ctx context.Context) (bool, error) {
		_, ok, err := leaseBy(ctx, client, w, machine.Addr())
		return err == nil && !ok, err
	})
}

// SubnetTaken gives the subnet that a node had to another node, which comes up believing that it is its own:
// what happens when an allocator has given a subnet away, or a disk was cloned.
type SubnetTaken struct {
	// From had the subnet and must have lost its lease. By gets it; its agent must not run yet.
	From, By string
}

// Name implements Fault.
func (f SubnetTaken) Name() string { return "subnet of " + f.From + " taken by " + f.By }

// Identity implements Fault.
func (f SubnetTaken) Identity() Identity { return at("subnet-taken", f.From, f.By) }

// Inject implements Fault. The taker finds the other's subnet in its own subnet file; the rest is the
// overlay's own doing. The proof is that the lease over the subnet names the taker.
func (f SubnetTaken) Inject(ctx context.Context, w *Injection) error {
	from, err := w.Machine(f.From)
	if err != nil {
		return err
	}
	by, err := w.Machine(f.By)
	if err != nil {
		return err
	}
	env, err := os.ReadFile(from.Path(w.SubnetFile()))
	if err != nil {
		return fmt.Errorf("read the subnet of %s: %w", f.From, err)
	}
	file := by.Path(w.SubnetFile())
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, env, 0o644)); err != nil {
		return fmt.Errorf("give %s the subnet file of %s: %w", f.By, f.From, err)
	}
	if err := w.StartAgent(ctx, f.By); err != nil {
		return err
	}
	client, err := w.Etcd().Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	subnet, err := flannelkeys.ParseEnv(env)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the lease of %s names %s", subnet.Key(), f.By)
	return prove(ctx, proofWithin, what, func(ctx context.Context) (bool, error) {
		l, ok, err := leaseBy(ctx, client, w, by.Addr())
		return ok && l.Key == subnet.Key(), err
	})
}

// FileDeleted deletes a file on a node. Nothing brings it back but what wrote it.
type FileDeleted struct{ Node, Path string }

// Name implements Fault.
func (f FileDeleted) Name() string { return f.Path + " deleted on " + f.Node }

// Identity implements Fault.
func (f FileDeleted) Identity() Identity { return at("file-delete", f.Node).with("path", f.Path) }

// Inject implements Fault. The proof is that the file was there and is not.
func (f FileDeleted) Inject(_ context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	if err := os.Remove(machine.Path(f.Path)); err != nil {
		return fmt.Errorf("%w: delete %s on %s: %w", ErrNotProven, f.Path, f.Node, err)
	}
	return nil
}
