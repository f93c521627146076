package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nemesh/nemesh/overlay/lease"
)

// Leave gives this node's lease back. Its peers drop the node at once, and its subnet may be given away.
// Stop the agent before, or it registers again. The data plane of this node stays.
func Leave(ctx context.Context, opts Options, log *slog.Logger) error {
	client, err := dialEtcd(opts)
	if err != nil {
		return err
	}
	defer client.Close()
	state, err := load(opts.StateDir)
	if err != nil {
		return err
	}
	subnet, err := lease.ParseKey(state.Subnet)
	if err != nil {
		return fmt.Errorf("this node has left already, or never had a lease: there is none in %s", opts.StateDir)
	}
	store := lease.NewStore(client, opts.EtcdPrefix, log)
	ctx, cancel := context.WithTimeout(ctx, 5*opts.EtcdTimeout)
	defer cancel()
	view, err := store.List(ctx)
	if err != nil {
		return fmt.Errorf("%w; the lease is kept, so try again when etcd answers", err)
	}
	held, ok := view.At(subnet)
	mine := lease.Attrs{PublicIP: state.PublicIP, PublicIPv6: state.PublicIPv6}
	if !ok || held.Attrs.Node() != mine.Node() {
		held = lease.Lease{Subnet: subnet} // only the record may be left
	}
	// The subnet may be another's by now, who is known by its record while its lease is gone for a moment.
	if o, there := view.OwnerOf(subnet); held.ModRevision != 0 || there && o.Instance == state.Instance {
		if err := store.Release(ctx, held); err != nil && !errors.Is(err, lease.ErrLost) {
			return err
		}
	}
	state.Subnet, state.LeaseID = "", 0
	if err := state.save(opts.StateDir); err != nil {
		return err
	}
	log.Info("left the network", "subnet", subnet)
	return nil
}
