package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/flannelkeys"
)

// Lease is a subnet lease as it stands in etcd.
type Lease = flannelkeys.Lease

// Leases reads the subnet leases, sorted by key: those of the control plane, or of an agent that keeps them
// elsewhere what its driver tells. The error is a *driver.LacksError where it tells none.
func (c *Cluster) Leases(ctx context.Context) ([]Lease, error) {
	if err := driver.Lacks(c.opts.Agent, driver.FeatureLeases); err != nil {
		return nil, err
	}
	if r, ok := c.opts.Agent.(driver.LeaseReader); ok {
		return c.toldLeases(ctx, r)
	}
	return c.control.Leases(ctx)
}

// EtcdLeases lists the ids of all leases in etcd, whatever hangs on them.
func (c *Cluster) EtcdLeases(ctx context.Context) ([]int64, error) {
	client, err := c.Etcd().Client(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	resp, err := client.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("list etcd's leases: %w", err)
	}
	var ids []int64
	for _, l := range resp.Leases {
		ids = append(ids, int64(l.ID))
	}
	return ids, nil
}

// LeaseOf returns the key of a node's lease, such as 10.5.3.0-24; "" if it has none.
func (c *Cluster) LeaseOf(ctx context.Context, node string) (string, error) {
	m, err := c.Machine(node)
	if err != nil {
		return "", err
	}
	leases, err := c.Leases(ctx)
	for _, l := range leases {
		if l.PublicIP == m.Addr() {
			return l.Key, err
		}
	}
	return "", err
}

// SubnetOf returns the key of the subnet that a node's subnet file names, such as 10.5.3.0-24.
func (c *Cluster) SubnetOf(node string) (string, error) {
	n, err := c.Node(node)
	if err != nil {
		return "", err
	}
	env, err := n.subnetEnv()
	return env.Key(), err
}

// subnetEnv reads the node's subnet file.
func (n *Node) subnetEnv() (flannelkeys.Env, error) {
	if err := driver.Lacks(n.driver, driver.FeatureSubnetFile); err != nil {
		return flannelkeys.Env{}, err
	}
	env, err := os.ReadFile(n.Path(n.driver.SubnetFile()))
	if err != nil {
		return flannelkeys.Env{}, fmt.Errorf("read the subnet file of %s: %w", n.Name(), err)
	}
	return flannelkeys.ParseEnv(env)
}

// Retire takes a node's lease and its owner's record out of the control plane, as an operator does who
// decommissions a node whose agent is gone.
func (c *Cluster) Retire(ctx context.Context, node string) error {
	key, err := c.LeaseOf(ctx, node)
	if err != nil {
		return err
	}
	if key == "" {
		return fmt.Errorf("%s has no lease to give up", node)
	}
	return c.control.Retire(ctx, key)
}

// Configure puts a network configuration into the control plane, in place of the one that is there. From
// then on the cluster takes its network for what the overlay should use.
func (c *Cluster) Configure(ctx context.Context, config string) error {
	var wanted struct{ Network netip.Prefix }
	if err := json.Unmarshal([]byte(config), &wanted); err != nil {
		return fmt.Errorf("the network configuration is not the JSON expected: %w", err)
	}
	if err := c.control.Configure(ctx, config); err != nil {
		return err
	}
	c.opts.Network = wanted.Network
	return nil
}
