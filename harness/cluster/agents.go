package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/wait"
	"github.com/nemesh/nemesh/reports/record"
)

// readyWithin bounds an agent's start and the spreading of a change to all nodes.
const readyWithin = 20 * time.Second

// spec tells an agent about its node.
func (c *Cluster) spec(name string, addr netip.Addr) driver.Spec {
	s := driver.Spec{
		Node: name, PublicIP: addr, Uplink: node.Uplink, LeaseTTL: c.opts.LeaseTTL, Resync: c.opts.Resync,
		PeerHold: c.opts.PeerHold, VNI: c.opts.VNI, Network: c.opts.Network, SubnetLen: c.opts.SubnetLen,
	}
	for i := range c.opts.Nodes {
		if peer := nodeName(i); peer != name {
			s.Peers = append(s.Peers, driver.Peer{Name: peer, Addr: c.opts.addr(i)})
		}
	}
	c.control.Introduce(&s)
	return s
}

// RunAgent runs the agent's program on a node with more arguments, beside or instead of the agent, and waits
// for its end.
func (c *Cluster) RunAgent(ctx context.Context, name string, args ...string) (*node.Process, error) {
	n, err := c.Node(name)
	if err != nil {
		return nil, err
	}
	spec := c.spec(n.Name(), n.Addr())
	spec.ExtraArgs = args
	p, err := n.Start(ctx, n.driver.Command(spec))
	if err != nil {
		return nil, err
	}
	select {
	case <-p.Exited():
		return p, nil
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("the agent's program on %s does not end: %w", name, ctx.Err()), p.Kill(
			context.WithoutCancel(ctx)))
	}
}

// LaunchAgent starts a node's agent, with more arguments if given, and does not wait until it is ready.
func (c *Cluster) LaunchAgent(ctx context.Context, name string, args ...string) (*node.Process, error) {
	return c.launchAgent(ctx, name, func(c node.Command) node.Command { return c }, args...)
}

// launchAgent starts what change makes of the command of a node's agent.
func (c *Cluster) launchAgent(
	ctx context.Context,
	name string,
	change func(node.Command) node.Command,
	args ...string,
) (*node.Process, error) {
	n, err := c.Node(name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != nil && n.agent.Running() {
		return nil, fmt.Errorf("the agent on %s runs already", name)
	}
	spec := c.spec(n.Name(), n.Addr())
	spec.ExtraArgs = args
	command := change(n.driver.Command(spec))
	command.Notify = true
	if n.agent, err = n.Start(ctx, command); err != nil {
		return nil, err
	}
	c.NoteProcess(name, n.agent)
	return n.agent, nil
}

// StartAgent starts a node's agent and returns when it has said which subnet it has and its device is there.
// An agent that runs already is not an error. One that ends, or is not ready in time, is an error with its
// last lines.
func (c *Cluster) StartAgent(ctx context.Context, name string) error {
	return c.StartAgentAs(ctx, name, func(c node.Command) node.Command { return c })
}

// StartAgentAs starts what change makes of the command of a node's agent, such as another program or other
// flags, and waits for it like StartAgent.
func (c *Cluster) StartAgentAs(
	ctx context.Context,
	name string,
	change func(node.Command) node.Command,
) error {
	n, err := c.Node(name)
	if err != nil {
		return err
	}
	if a, err := c.Agent(name); err == nil && a.Running() {
		return nil
	}
	for again := 0; ; again++ {
		agent, err := c.startOnce(ctx, n, change)
		switch {
		case err == nil && driver.Supervised(n.driver):
			go c.supervise(context.WithoutCancel(ctx), n, agent)
			return nil
		case err == nil:
			return nil
		case agent == nil || agent.Running() || !driver.Supervised(n.driver),
			again == firstStarts || ctx.Err() != nil:
			return err
		}
		c.Step("the agent on " + name + " ended before it was ready; its supervisor starts it again")
		select {
		case <-ctx.Done():
			return err
		case <-time.After(restartAfter):
		}
	}
}

// firstStarts is how often a supervised agent that ends before it was ready is started again; then it is
// broken.
const firstStarts = 3

// startOnce starts a node's agent and waits until it is ready. The agent is nil where it could not be
// started.
func (c *Cluster) startOnce(
	ctx context.Context,
	n *Node,
	change func(node.Command) node.Command,
) (*node.Process, error) {
	name, began := n.Name(), time.Now()
	agent, err := c.launchAgent(ctx, name, change)
	if err != nil {
		return nil, err
	}
	err = c.wait(ctx, "the agent on "+name+" is ready", agent, func(ctx context.Context) (bool, error) {
		if err := ready(ctx, agent, n, began); err != nil {
			return false, err
		}
		if !n.HasDevice() {
			return true, nil
		}
		_, err = n.Netlink().LinkByName(n.Device())
		if err != nil {
			err = fmt.Errorf("its device %s: %w", n.Device(), err)
		}
		return err == nil, err
	})
	if err != nil {
		return agent, errors.Join(err, hint(agent, n, began))
	}
	return agent, nil
}

// hint adds to the failure of a start what may explain it: that the agent has left for the background, or
// has written a subnet file elsewhere. It is nil if there is nothing to say.
func hint(agent *node.Process, n *Node, began time.Time) error {
	if !agent.Running() {
		if agent.ExitErr() == nil {
			return errors.New("an agent must stay in the foreground: if it went into the background, give it the " +
				"argument that keeps it from that")
		}
		return nil
	}
	if n.driver.SubnetFile() == "" {
		return nil
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		root := n.Path(dir)
		found := ""
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || path == n.Path(n.driver.SubnetFile()) {
				return nil //nolint:nilerr // what cannot be read explains nothing
			}
			info, err := e.Info()
			if err != nil || info.Size() > 4096 || info.ModTime().Before(began) {
				return nil //nolint:nilerr // as above
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil //nolint:nilerr // as above
			}
			if _, err := flannelkeys.ParseEnv(raw); err == nil {
				found = dir + strings.TrimPrefix(path, root)
				return fs.SkipAll
			}
			return nil
		})
		if err == nil && found != "" {
			return fmt.Errorf(
				"it has written %s, though: if that is its subnet file, tell the driver (subnet_file)",
				found,
			)
		}
	}
	return nil
}

// ready reports, as an error, why an agent is not taken for ready: its driver, which looks itself, says
// so, or it has neither said that it is nor written its subnet file since it began, or not that of the two
// which its driver names. A file of before is no proof: a signal may still find it without a handler.
func ready(ctx context.Context, agent *node.Process, n *Node, began time.Time) error {
	if p, ok := n.driver.(driver.Prober); ok {
		return p.Ready(ctx, n.Machine)
	}
	how, file := driver.ReadinessOf(n.driver), n.Path(n.driver.SubnetFile())
	if how != driver.ReadySubnetFile {
		select {
		case <-agent.Ready():
			return nil
		default:
		}
	}
	if how == driver.ReadyNotify {
		return errors.New("it has not said READY=1 (sd_notify)")
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return fmt.Errorf("its subnet file %s is not there", n.driver.SubnetFile())
	case info.ModTime().Before(began):
		return fmt.Errorf("its subnet file is of %s, before its start, and it has not said READY=1 (sd_notify)",
			info.ModTime().Format(time.TimeOnly))
	}
	return nil
}

// SwapAgent ends a node's agent with SIGTERM and starts another in its place.
func (c *Cluster) SwapAgent(ctx context.Context, name string, to driver.Driver) error {
	n, err := c.Node(name)
	if err != nil {
		return err
	}
	if err := to.Check(); err != nil {
		return err
	}
	old, err := c.Agent(name)
	if err != nil {
		return err
	}
	if err := old.Terminate(ctx, readyWithin); err != nil {
		return err
	}
	n.driver = to
	return c.StartAgent(ctx, name)
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

// wait waits for a condition that an agent is to bring about.
func (c *Cluster) wait(
	ctx context.Context,
	what string,
	agent *node.Process,
	holds func(context.Context) (bool, error),
) error {
	err := wait.Within(ctx, readyWithin, 5*time.Millisecond, func(ctx context.Context) error {
		ok, err := holds(ctx)
		if ok {
			return nil
		}
		select {
		case <-agent.Exited():
			return wait.GiveUp(agent.Unexpected("while waiting until " + what))
		default:
			return cmp.Or(err, errors.New("not yet"))
		}
	})
	if err == nil || !agent.Running() {
		return err
	}
	last := "the agent has written nothing"
	if lines := agent.Tail(15); len(lines) > 0 {
		last = "the agent's last lines:\n  " + strings.Join(lines, "\n  ")
	}
	return fmt.Errorf("waited for this in vain: %s: %w; %s", what, err, last)
}

// NoteProcess records that a process has started and, when it does, that it ended.
func (c *Cluster) NoteProcess(machine string, p *node.Process) {
	if c.record == nil {
		return
	}
	about := record.Process{Machine: machine, Name: p.Name(), Pid: p.Pid()}
	c.record.Write(record.Event{Kind: record.KindProcess, Process: &about})
	go func() {
		ended := about
		ended.Exited, ended.How = true, "exit status 0"
		if err := p.ExitErr(); err != nil {
			ended.How = err.Error()
		}
		c.record.Write(record.Event{Kind: record.KindProcess, Process: &ended})
	}()
}
