package cluster

import (
	"context"

	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/reports/record"
)

// Reboot switches a node off and on. Its pods are gone, and so is its agent, until it is started.
func (c *Cluster) Reboot(ctx context.Context, name string) error {
	c.noteFault(c.heals.Begin(c, fault.NodeReboot{Node: name}), record.FaultProved, "", nil)
	if err := c.PowerOff(ctx, name); err != nil {
		return err
	}
	n, err := c.Node(name)
	if err != nil {
		return err
	}
	return n.Machine.PowerOn(ctx)
}

// PowerOff switches a node off. Its pods leave the mesh.
func (c *Cluster) PowerOff(ctx context.Context, name string) error {
	n, err := c.Node(name)
	if err != nil {
		return err
	}
	for _, p := range c.PodsOn(name) {
		c.ForgetPod(p)
		if err := p.Close(); err != nil {
			return err
		}
	}
	c.mesh.Remove(name)
	return n.Machine.PowerOff(ctx)
}
