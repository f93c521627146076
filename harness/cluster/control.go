package cluster

import (
	"context"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
)

// Control is the control plane of a cluster: where agents find the network's configuration and each other's
// leases. etcd is the first implementation.
type Control interface {
	// Machines are those that it runs on.
	Machines() []*node.Machine
	// Start starts it and returns when it answers; Stop ends it as an operator would.
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	// Running reports whether a part of it runs.
	Running() bool
	// Endpoints lists where agents reach it.
	Endpoints() []string
	// Admit gives a node what its agent needs to be let in, such as a certificate. Introduce fills in what the
	// agent is told of the control plane.
	Admit(m *node.Machine) error
	Introduce(s *driver.Spec)
	// Configure puts the network configuration, flannel's JSON, where agents look for it.
	Configure(ctx context.Context, config string) error
	// Leases reads the subnet leases, sorted by key.
	Leases(ctx context.Context) ([]Lease, error)
	// Owners reads the records of who had a subnet last; none where nobody keeps such records.
	Owners(ctx context.Context) ([]flannelkeys.Owner, error)
	// GiveAway leases a subnet to somebody else, for ttl at most. takeBack ends that lease.
	GiveAway(ctx context.Context, l Lease, ttl time.Duration) (takeBack func(context.Context) error, err error)
	// Retire deletes the lease with a key, and what is remembered of its owner.
	Retire(ctx context.Context, key string) error
}

// Control is the cluster's control plane.
func (c *Cluster) Control() Control { return c.control }

// Etcd implements fault.World; nil where the control plane is another.
func (c *Cluster) Etcd() *etcd.Member {
	if e, ok := c.control.(*etcdControl); ok {
		return e.first
	}
	return nil
}
