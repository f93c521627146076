package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/flannelkeys"
)

// Lease is a subnet lease as it stands in etcd.
type Lease = flannelkeys.Lease

// Leases reads the subnet leases, sorted by key.
func (c *Cluster) Leases(ctx context.Context) ([]Lease, error) {
	client, err := c.store.Client(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	dir := c.EtcdPrefix() + flannelkeys.Subnets
	resp, err := client.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var leases []Lease
	for _, kv := range resp.Kvs {
		l, err := flannelkeys.ParseLease(strings.TrimPrefix(string(kv.Key), dir), string(kv.Value))
		if err != nil {
			continue // nonsense, which a scenario may have put there
		}
		l.ID = kv.Lease
		if kv.Lease != 0 {
			ttl, err := client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil {
				return nil, fmt.Errorf("time to live of lease %s: %w", kv.Key, err)
			}
			l.TTL = time.Duration(ttl.TTL) * time.Second
		}
		leases = append(leases, l)
	}
	if !c.opts.v2() {
		return leases, nil
	}
	more, err := c.LeasesV2(ctx)
	leases = append(leases, more...)
	slices.SortFunc(leases, func(a, b Lease) int { return strings.Compare(a.Key, b.Key) })
	return leases, err
}

// LeasesV2 reads the leases of agents that speak etcd's v2 API. They have no id, and those that do not tell
// their VNI have it from the network configuration.
func (c *Cluster) LeasesV2(ctx context.Context) ([]Lease, error) {
	keys, err := c.store.ListV2(ctx, strings.TrimSuffix(c.EtcdPrefix()+flannelkeys.Subnets, "/"))
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var leases []Lease
	for _, k := range keys {
		l, err := flannelkeys.ParseLease(path.Base(k.Key), k.Value)
		if err != nil {
			continue // nonsense, as above
		}
		l.VNI, l.TTL = cmp.Or(l.VNI, c.opts.VNI), time.Duration(k.TTL)*time.Second
		leases = append(leases, l)
	}
	return leases, nil
}

// EtcdLeases lists the ids of all leases in etcd, whatever hangs on them.
func (c *Cluster) EtcdLeases(ctx context.Context) ([]int64, error) {
	client, err := c.store.Client(ctx)
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
	m, err := c.Machine(node)
	if err != nil {
		return "", err
	}
	env, err := os.ReadFile(m.Path(c.SubnetFile()))
	if err != nil {
		return "", fmt.Errorf("read the subnet file of %s: %w", node, err)
	}
	subnet, err := flannelkeys.ParseEnv(env)
	return subnet.Key(), err
}

// Retire takes a node's lease and its owner's record out of etcd, as an operator does who decommissions a
// node whose agent is gone.
func (c *Cluster) Retire(ctx context.Context, node string) error {
	key, err := c.LeaseOf(ctx, node)
	if err != nil {
		return err
	}
	if key == "" {
		return fmt.Errorf("%s has no lease to give up", node)
	}
	client, err := c.store.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, dir := range []string{flannelkeys.Owners, flannelkeys.Subnets} {
		if _, err := client.Delete(ctx, c.EtcdPrefix()+dir+key); err != nil {
			return fmt.Errorf("retire %s: %w", node, err)
		}
	}
	return nil
}

// Configure puts a network configuration into etcd, in place of the one that is there. From then on the
// cluster takes its network for what the overlay should use.
func (c *Cluster) Configure(ctx context.Context, config string) error {
	var wanted struct{ Network netip.Prefix }
	if err := json.Unmarshal([]byte(config), &wanted); err != nil {
		return fmt.Errorf("the network configuration is not the JSON expected: %w", err)
	}
	client, err := c.store.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Put(ctx, c.EtcdPrefix()+flannelkeys.Config, config); err != nil {
		return fmt.Errorf("put the network configuration: %w", err)
	}
	c.opts.Network = wanted.Network
	return nil
}
