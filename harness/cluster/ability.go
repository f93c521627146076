package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/observe"
)

// Lacks reports, as a *driver.LacksError, the first of the features that one of the cluster's agents does
// not have.
func (c *Cluster) Lacks(needed ...driver.Feature) error {
	for _, n := range c.nodes {
		if err := driver.Lacks(n.driver, needed...); err != nil {
			return err
		}
	}
	return driver.Lacks(c.opts.Agent, needed...)
}

// Subnet returns the subnet of a node's pods, as the agent's driver or its subnet file says. The error is a
// *driver.LacksError where neither can.
func (c *Cluster) Subnet(ctx context.Context, node string) (netip.Prefix, error) {
	n, err := c.Node(node)
	if err != nil {
		return netip.Prefix{}, err
	}
	return n.subnet(ctx)
}

func (n *Node) subnet(ctx context.Context) (netip.Prefix, error) {
	if err := driver.Lacks(n.driver, driver.FeatureSubnet); err != nil {
		return netip.Prefix{}, err
	}
	if r, ok := n.driver.(driver.SubnetReader); ok {
		subnet, err := r.Subnet(ctx, n.Machine)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("read the subnet of %s: %w", n.Name(), err)
		}
		return subnet.Masked(), nil
	}
	env, err := n.subnetEnv()
	return env.Gateway.Masked(), err
}

// toldLeases asks a driver for the leases.
func (c *Cluster) toldLeases(ctx context.Context, from driver.LeaseReader) ([]Lease, error) {
	told, err := from.Leases(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	leases := slices.Clone(told)
	for i, l := range leases {
		leases[i].Subnet, leases[i].Key = l.Subnet.Masked(), flannelkeys.Key(l.Subnet.Masked(), l.Subnet6)
	}
	slices.SortFunc(leases, func(a, b Lease) int { return strings.Compare(a.Key, b.Key) })
	return leases, nil
}

// HasDevice reports whether the backend has a device of its own on the node, through which it reaches its
// peers.
func (n *Node) HasDevice() bool { return n.backend != BackendHostGW && n.Device() != "" }

// leads reports whether a node has a route to the subnet of each other node, of those whose subnet can be
// read. What cannot be read was left to the agents' own readiness.
func (n *Node) leads(ctx context.Context, all []*Node) (bool, error) {
	routes, err := observe.Destinations(n.NetNS())
	if err != nil {
		return false, err
	}
	var missing []string
	for _, o := range all {
		if o == n || driver.Lacks(o.driver, driver.FeatureSubnet) != nil {
			continue
		}
		subnet, err := o.subnet(ctx)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(routes, func(r netip.Prefix) bool {
			return r.Bits() <= subnet.Bits() && r.Contains(subnet.Addr())
		}) {
			missing = append(missing, fmt.Sprintf("%s of %s", subnet, o.Name()))
		}
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("it has no route to %s", strings.Join(missing, ", "))
	}
	return true, nil
}
