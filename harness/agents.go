package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
)

// readyWithin bounds an agent's start and the spreading of a change to all nodes.
const readyWithin = 20 * time.Second

// spec tells an agent about its node.
func (c *Cluster) spec(n *Node) driver.Spec {
	return driver.Spec{
		Node: n.Name(), PublicIP: n.Addr(), Uplink: node.Uplink, EtcdEndpoints: []string{c.store.Endpoint()},
		EtcdPrefix: etcdPrefix, LeaseTTL: c.opts.LeaseTTL, Resync: c.opts.Resync, PeerHold: c.opts.PeerHold,
		VNI: c.opts.VNI,
	}
}

// LaunchAgent starts a node's agent and does not wait until it is ready.
func (c *Cluster) LaunchAgent(ctx context.Context, name string) (*node.Process, error) {
	n, err := c.Node(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != nil && n.agent.Running() {
		return nil, fmt.Errorf("the agent on %s runs already", name)
	}
	n.agent, err = n.Start(ctx, n.driver.Command(c.spec(n)))
	return n.agent, err
}

// StartAgent starts a node's agent and returns when it has said which subnet it has and its device is there.
// An agent that runs already is not an error. One that ends, or is not ready in time, is an error with its
// last lines.
func (c *Cluster) StartAgent(ctx context.Context, name string) error {
	n, err := c.Node(name)
	if err != nil {
		return err
	}
	if a, err := c.Agent(name); err == nil && a.Running() {
		return nil
	}
	began := time.Now()
	agent, err := c.LaunchAgent(ctx, name)
	if err != nil {
		return err
	}
	return c.wait(ctx, "the agent on "+name+" is ready", agent, func() (bool, error) {
		info, err := os.Stat(n.Path(n.driver.SubnetFile()))
		if err != nil {
			return false, err
		}
		// A file of before is no proof, unless the agent has found nothing to change in it.
		if info.ModTime().Before(began) && time.Since(began) < 300*time.Millisecond {
			return false, errors.New("its subnet file is an old one")
		}
		_, err = n.Netlink().LinkByName(c.device(n))
		return err == nil, err
	})
}

// Agent returns a node's agent, running or not.
func (c *Cluster) Agent(name string) (*node.Process, error) {
	n, err := c.Node(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil {
		return nil, fmt.Errorf("no agent has been started on %s", name)
	}
	return n.agent, nil
}

func (c *Cluster) device(n *Node) string { return n.driver.Device(c.opts.VNI) }

// WaitConverged waits until every node with a running agent has forwarding entries for all others with one.
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
			return c.wait(waitCtx, n.Name()+" knows every other node", agent, func() (bool, error) {
				return knows(n, c.device(n), running)
			})
		})
	}
	return all.Wait()
}

// knows reports whether a node's device has a forwarding entry for each other node.
func knows(n *Node, device string, all []*Node) (bool, error) {
	entries, err := observe.FDB(n.NetNS(), device)
	if err != nil {
		return false, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[e.IP.String()] = true
	}
	var missing []string
	for _, o := range all {
		if o != n && !there[o.Addr().String()] {
			missing = append(missing, o.Name())
		}
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("it has no forwarding entry for %s", strings.Join(missing, ", "))
	}
	return true, nil
}

// wait waits for a condition that an agent is to bring about.
func (c *Cluster) wait(
	ctx context.Context,
	what string,
	agent *node.Process,
	holds func() (bool, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok {
			return nil
		}
		select {
		case <-agent.Exited():
			return agent.Unexpected("while waiting until " + what)
		case <-ctx.Done():
			return fmt.Errorf("waited for this in vain: %s: %w; the agent's last lines:\n  %s", what,
				errors.Join(err, ctx.Err()), strings.Join(agent.Tail(15), "\n  "))
		case <-tick.C:
		}
	}
}
