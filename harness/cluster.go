// Package harness builds a cluster: a switch, a machine for etcd, nodes with an agent each, pods, and a
// mesh of pings between them. It is the public face of the packages below it; a scenario needs nothing else
// but the faults:
//
//	c, err := harness.New(ctx, harness.Options{Agent: driver.Ours{Bin: "bin"}}, nil)
//	err = c.StartMesh(ctx)
//	err = c.Inject(ctx, fault.EtcdStop{}, fault.AgentKill{Node: "node04"})
//	report, err := c.Mesh().Settle(ctx)
//
// It runs inside the sandbox (package sandbox), as root or not.
package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/enter"
	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/invariant"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/preflight"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
	"github.com/nemesh/nemesh/reports/record"
)

const (
	// etcdMachine is the name of the machine on which etcd runs.
	etcdMachine = "etcd"
	// closeWithin bounds tearing a cluster down.
	closeWithin = 30 * time.Second
)

// Cluster is a running world. Its methods may be called from several goroutines.
type Cluster struct {
	opts   Options
	dir    string
	record *record.Writer
	fabric *underlay.Switch
	store  *etcd.Member // the first of its cluster
	nodes  []*Node
	mesh   *probe.Mesh
	heals  fault.HealStack
	watch  recorder
	door   *enter.Door
	born   time.Time
	links  []string // of the sandbox, before there was a cluster

	etcdMachines []*node.Machine

	mu     sync.Mutex
	pods   []*pod.Pod
	healed time.Time
	final  *probe.Report // of the mesh, once it is stopped
	closed bool
	wanted map[probe.Pair]bool
	output map[string]*output // by machine
	waived map[string]string  // why an invariant may be broken, by its id
	// unreached are the pairs that failed the last expectation, and knownLeases what etcd told last.
	unreached   []probe.Pair
	knownLeases []follow.Lease
}

// Node is one machine of a cluster with its agent.
type Node struct {
	*node.Machine
	driver driver.Driver

	mu    sync.Mutex
	agent *node.Process
}

// New builds a cluster and returns when every agent is ready and knows every other, and the pods are there.
// A nil record drops what happens.
func New(ctx context.Context, opts Options, rec *record.Writer) (*Cluster, error) {
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
	if err := preflight.Check(); err != nil {
		return nil, err
	}
	links, err := invariant.SandboxLinks()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(sandbox.Dir, "world-")
	if err != nil {
		return nil, fmt.Errorf("lay out the world: %w", err)
	}
	c := &Cluster{
		opts: opts, dir: dir, record: rec.InCluster(newID(dir)), wanted: map[probe.Pair]bool{},
		mesh: probe.NewMesh(probe.Options{Interval: opts.ProbeInterval}),
		born: began, links: links, output: map[string]*output{}, waived: map[string]string{},
	}
	err = c.build(ctx)
	if err == nil {
		err = c.openDoor()
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
	for _, m := range c.etcdMachines {
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
		if driver.Lacks(d, driver.FeatureEtcdV3) != nil {
			return true
		}
	}
	return driver.Lacks(o.Agent, driver.FeatureEtcdV3) != nil
}

func (c *Cluster) build(ctx context.Context) error {
	var err error
	bits := c.opts.Underlay.Bits()
	c.fabric, err = underlay.NewSwitch(netip.PrefixFrom(offset(c.opts.Underlay, 1), bits))
	if err != nil {
		return err
	}
	if err := c.prepareEtcd(ctx); err != nil {
		return err
	}
	c.startRecorder()
	starting, startCtx := errgroup.WithContext(ctx)
	starting.Go(func() error {
		if err := etcd.StartAll(startCtx, c.store.Members()); err != nil {
			return err
		}
		return c.configureNetwork(startCtx)
	})
	for i := range c.opts.Nodes {
		name, d := nodeName(i), c.opts.Agent
		if other, ok := c.opts.AgentOf[name]; ok {
			d = other
		}
		_, keep := d.CNI()
		keep = append(slices.Clip(keep), filepath.Dir(d.Command(driver.Spec{}).Path))
		m, err := c.machine(ctx, name, plus(c.opts.FirstNode, i), keep)
		if err != nil {
			return errors.Join(err, starting.Wait())
		}
		c.nodes = append(c.nodes, &Node{Machine: m, driver: d})
		if c.opts.hasIPv6(name) {
			if err := m.SetAddr6(c.opts.underlay6(m.Addr())); err != nil {
				return errors.Join(err, starting.Wait())
			}
		}
		if err := c.equip(m); err != nil {
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
	c.leasesForPackets(ctx) // remembered for when etcd is away
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
	c.noteOutput(l)
	c.record.Write(record.Event{At: record.At(l.At), Kind: record.KindLog,
		Log: &record.Log{Machine: l.Machine, Process: l.Process, Text: l.Text}})
}

// configureNetwork puts the network configuration where the agents look for it.
func (c *Cluster) configureNetwork(ctx context.Context) error {
	backend := map[string]any{"Type": c.opts.Backend}
	if c.hasDevice() {
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
	client, err := c.store.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Put(ctx, c.EtcdPrefix()+"/config", string(raw)); err != nil {
		return fmt.Errorf("put the network configuration: %w", err)
	}
	if c.opts.v2() {
		if err := c.store.PutV2(ctx, c.EtcdPrefix()+"/config", string(raw), 0); err != nil {
			return err
		}
	}
	if c.store.Secure() {
		return c.store.EnableAuth(ctx, c.EtcdPrefix())
	}
	return nil
}

// Close tears the cluster down: faults are healed first, so that everything ends as it would in life. What
// the mesh has measured stays for Summary.
func (c *Cluster) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	traces, err := c.traces()
	defer func() { traces.Close() }() // what could be opened, also after an error
	errs := []error{err, c.door.Close()}
	c.watch.close()
	c.stopMesh()
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
	for _, m := range c.etcdMachines {
		errs = append(errs, m.Close())
	}
	if c.fabric != nil {
		errs = append(errs, c.fabric.Close())
	}
	errs = append(errs, os.RemoveAll(c.dir))
	return errors.Join(append(errs, c.checkLeft(ctx, traces))...)
}

// stopMesh ends the mesh; what it has measured stays for Summary.
func (c *Cluster) stopMesh() {
	c.mu.Lock()
	stopped := c.final != nil
	c.mu.Unlock()
	if stopped {
		return
	}
	c.mesh.Close()
	report := c.mesh.Report()
	if c.store != nil && len(c.nodes) == c.opts.Nodes {
		c.writeSeries(true)
		c.writeProbe(report)
	}
	c.mu.Lock()
	c.final = &report
	c.mu.Unlock()
}

// Options returns what the cluster was built from, defaults included.
func (c *Cluster) Options() Options { return c.opts }

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
