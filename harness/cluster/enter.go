package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nemesh/nemesh/harness/enter"
	"github.com/nemesh/nemesh/harness/node"
)

// serveEnter lets `nemesh enter` run commands on the machines.
func (c *Cluster) serveEnter() error {
	s, err := enter.Listen(filepath.Join(c.dir, enter.Socket), c.world, c.anyMachine)
	c.entry = s
	return err
}

// world describes the world for `nemesh enter`.
func (c *Cluster) world() enter.World {
	return enter.World{ID: c.ID(), Scenario: c.record.Scenario(), Nodes: c.Machines()}
}

// Machines lists the names of all machines that can be entered: the nodes, then etcd's.
func (c *Cluster) Machines() []string {
	names := c.Nodes()
	for _, m := range c.control.Machines() {
		names = append(names, m.Name())
	}
	return names
}

// anyMachine finds a machine, etcd's among them.
func (c *Cluster) anyMachine(name string) (*node.Machine, error) {
	for _, n := range c.nodes {
		if n.Name() == name {
			return n.Machine, nil
		}
	}
	for _, m := range c.control.Machines() {
		if m.Name() == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("there is no machine %q: there are %s", name, strings.Join(c.Machines(), ", "))
}
