package cluster

import (
	"context"
	"time"

	"github.com/nemesh/nemesh/harness/node"
)

// restartAfter is how long a supervisor waits before it starts an agent again: systemd's default
// (RestartSec).
const restartAfter = 100 * time.Millisecond

// supervise starts an agent again that ends without being told to, as often as it does.
func (c *Cluster) supervise(ctx context.Context, n *Node, agent *node.Process) {
	for {
		<-agent.Exited()
		if agent.Told() || c.Closed() {
			return
		}
		c.Step("the agent on " + n.Name() + " ended by itself; its supervisor starts it again")
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartAfter):
		}
		next, err := c.succeed(ctx, n, agent)
		if err != nil {
			c.Step("the supervisor on " + n.Name() + " gives up: " + err.Error())
		}
		if next == nil {
			return // the machine is off, or somebody else has started one
		}
		agent = next
	}
}

// succeed starts an agent in place of one that has ended, unless there is another by now.
func (c *Cluster) succeed(ctx context.Context, n *Node, ended *node.Process) (*node.Process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != ended || ended.Told() {
		return nil, nil
	}
	next, err := n.Start(ctx, ended.Command())
	if err != nil {
		return nil, err
	}
	n.agent = next
	c.NoteProcess(n.Name(), next)
	return next, nil
}
