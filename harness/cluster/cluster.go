// Package cluster builds and holds a world: a switch, a machine for etcd, nodes with an agent each, pods,
// and a mesh of pings between them.
//
//	c, err := cluster.New(ctx, cluster.Options{Agent: driver.Ours{Bin: "bin"}}, nil)
//	err = c.StartMesh(ctx)
//	err = c.Inject(ctx, fault.EtcdStop{}, fault.AgentKill{Node: "node04"})
//	report, err := c.Mesh().Settle(ctx)
//
// It runs inside the sandbox (package sandbox), as root or not.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/enter"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/preflight"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
	"github.com/nemesh/nemesh/reports/record"
)

const (
	// EtcdMachine is the name of the machine on which etcd runs.
	EtcdMachine = "etcd"
	// closeWithin bounds tearing a cluster down.
	closeWithin = 30 * time.Second
)

// Cluster is a running world. Its methods may be called from several goroutines.
type Cluster struct {
	opts    Options
	dir     string
	record  *record.Writer
	fabric  *underlay.Switch
	control Control
	nodes   []*Node
	mesh    *probe.Mesh
	heals   fault.HealStack
	entry   *enter.Server
	born    time.Time

	mu      sync.Mutex
	pods    []*pod.Pod
	healed  time.Time
	final   *probe.Report // of the mesh, once it is stopped
	meshEnd sync.Once
	closed  bool
	wanted  map[probe.Pair]bool
	// unreached are the pairs that failed the last expectation.
	unreached []probe.Pair
	onOutput  []func(node.Line)
	onMoment  []func(when string)
	onClose   []func()
}

// Node is one machine of a cluster with its agent.
type Node struct {
	*node.Machine
	driver  driver.Driver
	vni     int
	backend string

	mu    sync.Mutex
	agent *node.Process
}

// New builds a cluster and returns when every agent is ready and knows every other, and the pods are there.
// A nil record drops what happens. Each function of watch is called once the control plane's machines are
// there and before anything is started on them, so that a watcher sees all that follows.
func New(ctx context.Context, opts Options, rec *record.Writer, watch ...func(*Cluster)) (*Cluster, error) {
	began := time.Now()
	opts = opts.withDefaults()
	if err := opts.check(); err != nil {
		return nil, err
	}
	if !sandbox.Inside() {
		return nil, errors.New(
			"a cluster is built inside the sandbox only: call sandbox.Enter first in main or TestMain",
		)
	}
	if err := preflight.Check(ns.Scratch); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(sandbox.Dir, "world-")
	if err != nil {
		return nil, fmt.Errorf("lay out the world: %w", err)
	}
	c := &Cluster{
		opts: opts, dir: dir, record: rec.InCluster(newID(dir)), wanted: map[probe.Pair]bool{},
		mesh: probe.NewMesh(probe.Options{Interval: opts.ProbeInterval}),
		born: began,
	}
	err = c.build(ctx, watch)
	if err == nil {
		err = c.serveEnter()
	}
	if err != nil {
		return nil, errors.Join(diskFull(), fmt.Errorf("build the world: %w", err), c.Close())
	}
	addrs := map[string]string{}
	var machines []record.Machine
	note := func(m *node.Machine, role string) {
		addrs[m.Name()] = m.Addr().String()
		machines = append(machines, record.Machine{Name: m.Name(), Addr: m.Addr().String(), Role: role})
	}
	for _, m := range c.control.Machines() {
		note(m, record.RoleEtcd)
	}
	for _, n := range c.nodes {
		note(n.Machine, record.RoleNode)
	}
	name, defects := driver.DefectsOf(opts.Agent)
	c.record.Write(record.Event{Kind: record.KindWorld, World: &record.World{
		Nodes: addrs, Machines: machines, Network: opts.Network.String(), Agent: opts.Agent.Name(), Driver: name,
		Defects: defects, BuiltIn: int64(time.Since(began)),
		Device: c.Device(), Underlay: opts.Underlay.String(), Interval: int64(opts.ProbeInterval),
		LeaseTTL: int64(opts.LeaseTTL),
	}})
	return c, nil
}

// diskFull says so when the sandbox's tmpfs has no room left, since what fails then seldom does.
func diskFull() error {
	var fs unix.Statfs_t
	const little = 1 << 20
	if err := unix.Statfs(sandbox.Dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) > little {
		return nil
	}
	return fmt.Errorf(
		"the sandbox's /run is full (%d MiB): give it more with %s=1g, or the machine more memory",
		fs.Blocks*uint64(fs.Bsize)>>20,
		sandbox.SizeEnv,
	)
}

// check reports what keeps the described cluster from being built, binaries included.
func (o Options) check() error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.Agent == nil {
		return errors.New("no overlay under test: set Options.Agent, such as driver.Ours{Bin: \"bin\"}")
	}
	errs := []error{o.Agent.Check()}
	for name, d := range o.AgentOf {
		errs = append(errs, d.Check())
		if p := driver.PrefixOf(d); p != driver.PrefixOf(o.Agent) {
			errs = append(
				errs,
				fmt.Errorf("%s on %s keeps its keys at %s and %s at %s: they would not find each other",
					d.Name(), name, p, o.Agent.Name(), driver.PrefixOf(o.Agent)),
			)
		}
	}
	if o.v2() && o.EtcdBinary == "" {
		errs = append(
			errs,
			fmt.Errorf("%s speaks etcd's v2 API, which the etcd that is built in does not have: bring an "+
				"etcd 3.4 or 3.5 (--etcd-bin, or %s)", o.Agent.Name(), EtcdBinaryEnv),
		)
	}
	return errors.Join(errs...)
}

// v2 reports whether an agent speaks etcd's v2 API.
func (o Options) v2() bool {
	for _, d := range o.AgentOf {
		if driver.NeedsV2(d) {
			return true
		}
	}
	return driver.NeedsV2(o.Agent)
}

func (c *Cluster) build(ctx context.Context, watch []func(*Cluster)) error {
	var err error
	bits := c.opts.Underlay.Bits()
	c.fabric, err = underlay.NewSwitch(netip.PrefixFrom(underlay.Nth(c.opts.Underlay, 1), bits))
	if err != nil {
		return err
	}
	if err := c.prepareControl(ctx); err != nil {
		return err
	}
	for _, w := range watch {
		w(c)
	}
	starting, startCtx := errgroup.WithContext(ctx)
	starting.Go(func() error {
		if err := c.control.Start(startCtx); err != nil {
			return err
		}
		return c.configureNetwork(startCtx)
	})
	for i := range c.opts.Nodes {
		name, d := nodeName(i), c.opts.Agent
		if other, ok := c.opts.AgentOf[name]; ok {
			d = other
		}
		addr := c.opts.addr(i)
		_, keep := d.CNI()
		keep = append(slices.Clip(keep), filepath.Dir(d.Command(c.spec(name, addr)).Path))
		m, err := c.machine(ctx, name, addr, keep)
		if err != nil {
			return errors.Join(err, starting.Wait())
		}
		c.nodes = append(c.nodes, &Node{Machine: m, driver: d, vni: c.opts.VNI, backend: c.opts.Backend})
		if c.opts.hasIPv6(name) {
			if err := m.SetAddr6(c.opts.underlay6(m.Addr())); err != nil {
				return errors.Join(err, starting.Wait())
			}
		}
		if err := c.control.Admit(m); err != nil {
			return errors.Join(err, starting.Wait())
		}
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	return c.populate(ctx)
}

// populate starts the agents and makes the first pods.
func (c *Cluster) populate(ctx context.Context) error {
	var working []*Node
	for _, n := range c.nodes {
		if !slices.Contains(c.opts.Idle, n.Name()) {
			working = append(working, n)
		}
	}
	agents, agentCtx := errgroup.WithContext(ctx)
	for _, n := range working {
		agents.Go(func() error { return c.StartAgent(agentCtx, n.Name()) })
	}
	if err := agents.Wait(); err != nil {
		return err
	}
	if err := c.WaitConverged(ctx); err != nil {
		return err
	}
	pods, podCtx := errgroup.WithContext(ctx)
	for _, n := range working {
		for i := range max(0, c.opts.PodsPerNode) {
			pods.Go(func() error {
				_, err := c.AddPod(podCtx, n.Name(), fmt.Sprintf("%s-pod%d", n.Name(), i+1))
				return err
			})
		}
	}
	return pods.Wait()
}

func (c *Cluster) machine(
	ctx context.Context,
	name string,
	addr netip.Addr,
	keep []string,
) (*node.Machine, error) {
	return node.New(ctx, node.Options{
		Name:   name,
		Dir:    c.dir + "/" + name,
		Switch: c.fabric,
		Addr:   netip.PrefixFrom(addr, c.opts.Underlay.Bits()),
		Keep:   keep,
		Output: c.log,
	})
}

func (c *Cluster) log(l node.Line) {
	c.mu.Lock()
	listeners := c.onOutput
	c.mu.Unlock()
	for _, listen := range listeners {
		listen(l)
	}
	c.record.Write(record.Event{
		At: record.At(l.At), Kind: record.KindLog,
		Log: &record.Log{Machine: l.Machine, Process: l.Process, Text: l.Text},
	})
}

// configureNetwork puts the network configuration where the agents look for it.
func (c *Cluster) configureNetwork(ctx context.Context) error {
	backend := map[string]any{"Type": c.opts.Backend}
	if c.HasDevice() {
		backend["VNI"], backend["Port"] = c.opts.VNI, c.opts.Port
	}
	config := map[string]any{
		"Network": c.opts.Network.String(), "SubnetLen": c.opts.SubnetLen, "Backend": backend,
	}
	if c.opts.NFTables {
		config["EnableNFTables"] = true
	}
	if c.opts.IPv6 {
		config["EnableIPv6"], config["IPv6Network"] = true, Network6.String()
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode the network configuration: %w", err)
	}
	return c.control.Configure(ctx, string(raw))
}

// prepareControl lays out the machines of the control plane.
func (c *Cluster) prepareControl(ctx context.Context) error {
	var machines []*node.Machine
	for i := range c.opts.EtcdMembers {
		name := EtcdMachine
		if i > 0 {
			name = fmt.Sprintf("%s%d", EtcdMachine, i+1)
		}
		m, err := c.machine(ctx, name, underlay.Plus(c.opts.Etcd, i), nil)
		if err != nil {
			return errors.Join(err, closeAll(machines))
		}
		machines = append(machines, m)
	}
	control, err := newEtcd(machines, c.EtcdPrefix(), c.opts)
	if err != nil {
		return errors.Join(err, closeAll(machines))
	}
	c.control = control
	return nil
}

func closeAll(machines []*node.Machine) error {
	var errs []error
	for _, m := range machines {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Close tears the cluster down: faults are healed first, so that everything ends as it would in life. What
// the mesh has measured stays for Summary.
func (c *Cluster) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	c.mu.Lock()
	listeners := c.onClose
	c.mu.Unlock()
	for _, listen := range listeners {
		listen()
	}
	errs := []error{c.entry.Close()}
	c.EndMesh()
	c.mu.Lock()
	c.closed = true
	pods := c.pods
	c.pods = nil
	c.mu.Unlock()
	errs = append(errs, c.heals.Heal(ctx))
	for _, p := range pods {
		errs = append(errs, p.Close())
	}
	for _, n := range c.nodes {
		errs = append(errs, n.Machine.Close())
	}
	if c.control != nil {
		errs = append(errs, closeAll(c.control.Machines()))
	}
	if c.fabric != nil {
		errs = append(errs, c.fabric.Close())
	}
	errs = append(errs, os.RemoveAll(c.dir))
	return errors.Join(errs...)
}

// EndMesh ends the mesh; what it has measured stays for Summary. It returns false if it had ended before.
func (c *Cluster) EndMesh() bool {
	first := false
	c.meshEnd.Do(func() {
		first = true
		c.mesh.Close()
		report := c.mesh.Report()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.final = &report
	})
	return first
}

// OnClose has listen called when the cluster is about to be closed and still stands as it is, also when it
// is closed because it could not be built.
func (c *Cluster) OnClose(listen func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onClose = append(c.onClose, listen)
}

// OnOutput has listen called with every line that a program on a machine writes. It must not block.
func (c *Cluster) OnOutput(listen func(node.Line)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onOutput = append(c.onOutput, listen)
}

// OnMoment has listen called before the first fault (record.Before) and before faults are healed
// (record.During).
func (c *Cluster) OnMoment(listen func(when string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onMoment = append(c.onMoment, listen)
}

func (c *Cluster) moment(when string) {
	c.mu.Lock()
	listeners := c.onMoment
	c.mu.Unlock()
	for _, listen := range listeners {
		listen(when)
	}
}

// Record is where the cluster's events go; nil if nothing is recorded.
func (c *Cluster) Record() *record.Writer { return c.record }

// Dir is the cluster's folder in the sandbox.
func (c *Cluster) Dir() string { return c.dir }

// Born is when the building of the cluster began.
func (c *Cluster) Born() time.Time { return c.born }

// ID returns the id by which the record knows the cluster.
func (c *Cluster) ID() string { return newID(c.dir) }

// newID makes the id of a cluster from its folder, which no other cluster of the sandbox has.
func newID(dir string) string { return strings.TrimPrefix(filepath.Base(dir), "world-") }

// Options returns what the cluster was built from, defaults included.
func (c *Cluster) Options() Options { return c.opts }

// AllNodes lists the nodes, in order.
func (c *Cluster) AllNodes() []*Node { return slices.Clone(c.nodes) }

// Driver is how the node's agent is run.
func (n *Node) Driver() driver.Driver { return n.driver }

// Device is the name of the overlay's device on the node.
func (n *Node) Device() string { return n.driver.Device(n.vni) }

// Node returns a node by name.
func (c *Cluster) Node(name string) (*Node, error) {
	for _, n := range c.nodes {
		if n.Name() == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf(
		"there is no node %q: there are %s to %s",
		name,
		nodeName(0),
		nodeName(c.opts.Nodes-1),
	)
}

// Mesh returns the mesh, to which every pod and node belongs.
func (c *Cluster) Mesh() *probe.Mesh { return c.mesh }

// Step notes what a scenario does next.
func (c *Cluster) Step(text string) {
	c.record.Write(record.Event{Kind: record.KindStep, Step: text})
}

// Figure notes a measured number.
func (c *Cluster) Figure(name string, value float64, unit string) {
	c.record.Write(
		record.Event{Kind: record.KindFigure, Figure: &record.Figure{Name: name, Value: value, Unit: unit}},
	)
}
