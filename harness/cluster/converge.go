package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/observe"
)

// HasDevice reports whether the backend has a device of its own, through which it reaches its peers.
func (c *Cluster) HasDevice() bool { return c.opts.Backend != BackendHostGW && c.Device() != "" }

// WaitConverged waits until every node with a running agent has forwarding entries for all others with one.
// Where an agent does not keep flannel's keys, and so need not have flannel's entries, it waits for a
// route to each subnet that can be read.
func (c *Cluster) WaitConverged(ctx context.Context) error {
	var running []*Node
	for _, n := range c.nodes {
		if a, err := c.Agent(n.Name()); err == nil && a.Running() {
			running = append(running, n)
		}
	}
	all, waitCtx := errgroup.WithContext(ctx)
	for _, n := range running {
		all.Go(func() error {
			agent, err := c.Agent(n.Name())
			if err != nil {
				return err
			}
			return c.wait(
				waitCtx,
				n.Name()+" knows every other node",
				agent,
				func(ctx context.Context) (bool, error) {
					if c.Lacks(driver.FeatureKeys) != nil {
						return n.leads(ctx, running)
					}
					return c.knows(n, running)
				},
			)
		})
	}
	return all.Wait()
}

// knows reports whether a node's device has a forwarding entry for each other node; without such a device,
// as with host-gw, whether it has a route through each.
func (c *Cluster) knows(n *Node, all []*Node) (bool, error) {
	there := map[string]bool{}
	what := "forwarding entry for"
	if n.HasDevice() {
		entries, err := observe.FDB(n.NetNS(), n.Device())
		if err != nil {
			return false, err
		}
		for _, e := range entries {
			there[e.IP.String()] = true
		}
	} else {
		what = "route through"
		gateways, err := observe.Gateways(n.NetNS())
		if err != nil {
			return false, err
		}
		for _, g := range gateways {
			there[g.String()] = true
		}
	}
	var missing []string
	for _, o := range all {
		if o != n && !there[o.Addr().String()] {
			missing = append(missing, o.Name())
		}
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("it has no %s %s", what, strings.Join(missing, ", "))
	}
	return true, nil
}

// KnowsOnly reports, as an error, where the first of the named nodes has more or fewer forwarding entries
// than for the others.
func (c *Cluster) KnowsOnly(names ...string) error {
	var nodes []*Node
	for _, name := range names {
		n, err := c.Node(name)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	if ok, err := c.knows(nodes[0], nodes); !ok {
		return err
	}
	entries, err := observe.FDB(nodes[0].NetNS(), nodes[0].Device())
	if err == nil && len(entries) != len(nodes)-1 {
		err = fmt.Errorf("%s has %d forwarding entries for %d nodes", names[0], len(entries), len(nodes)-1)
	}
	return err
}

// DataPlane lists what the overlay holds in a node's kernel, so that two moments can be compared: its device
// without the index, addresses, routes, permanent neighbours and forwarding entries, and its rules. Of one
// without a device it lists the routes by way of others.
func (c *Cluster) DataPlane(name string) ([]string, error) {
	n, err := c.Node(name)
	if err != nil {
		return nil, err
	}
	state, err := observe.Read(n.NetNS())
	if err != nil {
		return nil, err
	}
	mark := cmp.Or(n.Device(), " via ") // of an overlay without a device: its routes by way of others
	s := state.Lines()
	var lines []string
	for _, part := range [][]string{s.Links, s.Addresses, s.Routes, s.Neighbours, s.FDB, s.Rules} {
		for _, l := range part {
			ours := strings.Contains(l, mark) || strings.HasPrefix(l, "rules")
			if ours && !strings.Contains(l, "fe80") && !strings.HasSuffix(l, "NOARP") {
				lines = append(lines, l)
			}
		}
	}
	forward, err := n.ReadSysctl("net.ipv4.ip_forward")
	return append(lines, "ip_forward "+forward), err
}
