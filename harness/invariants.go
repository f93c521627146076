package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/invariant"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/reports/record"
)

const (
	// restWithin bounds waiting for rest once everything is healed: what is not right by then is a violation.
	restWithin = 10 * time.Second
	// joinWithin is how long a node may take to learn of a peer that joins, and of its end.
	joinWithin = 2 * time.Second
	// foreignJoinWithin is that for agents whose timers are their own: flanneld's etcd client may wait some
	// seconds between attempts when etcd has been away.
	foreignJoinWithin = 10 * time.Second
	// leftWithin is how long the kernel may take to free what a closed world had.
	leftWithin = 2 * time.Second
	// joinMAC is the VTEP MAC of the peer that joins and leaves; nobody has it.
	joinMAC = "02:6e:65:6d:65:73"
)

// Waive says that the scenario means to break an invariant, and why: its violations are recorded and do not
// fail it. An id that there is not, or no reason, is an error.
func (c *Cluster) Waive(id, why string) error {
	if _, err := invariant.Find(id); err != nil {
		return err
	}
	if why == "" {
		return fmt.Errorf("invariant %s is waived without a reason: give one", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waived[id] = why
	return nil
}

// CheckInvariants ends the mesh, heals what is still broken, waits for rest and judges the cluster by every
// invariant. Rest is the moment at which all hold that are not waived, 10 s later at most. Then a plain
// flannel peer is made to join and to leave. Every result is recorded; the error says what kept from
// judging.
//
// Nothing is asked of an agent that was told to end, or of the kernel of its node.
func (c *Cluster) CheckInvariants(ctx context.Context) ([]invariant.Result, error) {
	c.stopMesh()
	if err := c.heals.Heal(ctx); err != nil {
		return nil, fmt.Errorf("heal before the invariants are checked: %w", err)
	}
	client, err := c.store.Client(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s, err := c.waitRest(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("check the invariants: %w", err)
	}
	if s.Join, err = c.join(ctx, client, s); err != nil {
		return nil, fmt.Errorf("have a peer join: %w", err)
	}
	results := invariant.Check(s, c.waivers())
	for _, r := range results {
		c.writeInvariant(r)
	}
	return results, nil
}

// waivers are what the agents of the cluster never promised, and what the scenario means to break.
func (c *Cluster) waivers() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	waived := map[string]string{}
	for _, n := range c.nodes {
		maps.Copy(waived, driver.Waives(n.driver))
	}
	for id, why := range c.waived {
		waived[id] = why
	}
	return waived
}

func (c *Cluster) writeInvariant(r invariant.Result) {
	details := r.Violations
	if r.Waived {
		details = append([]string{"waived: " + r.Why}, details...)
	}
	c.record.Write(record.Event{Kind: record.KindInvariant,
		Invariant: &record.Invariant{Name: r.ID, OK: r.OK, Waived: r.Waived, Details: details}})
}

// waitRest takes snapshots until one violates nothing that is not waived, or the time for that is over.
func (c *Cluster) waitRest(ctx context.Context, client *clientv3.Client) (invariant.Snapshot, error) {
	until := time.Now().Add(restWithin)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := c.snapshot(ctx, client)
		over := time.Now().After(until)
		if err == nil && (over || invariant.Failures(invariant.Check(s, c.waivers())) == "") {
			return s, nil
		}
		if err != nil && over {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
}

// Snapshot reads all that the invariants judge, as it is now.
func (c *Cluster) Snapshot(ctx context.Context) (invariant.Snapshot, error) {
	client, err := c.store.Client(ctx)
	if err != nil {
		return invariant.Snapshot{}, err
	}
	defer client.Close()
	return c.snapshot(ctx, client)
}

func (c *Cluster) snapshot(ctx context.Context, client *clientv3.Client) (invariant.Snapshot, error) {
	s := invariant.Snapshot{
		Network: c.opts.Network, SubnetLen: c.opts.SubnetLen, Backend: c.opts.Backend, VNI: c.opts.VNI,
		Hold: c.opts.PeerHold, Nodes: make([]invariant.Node, len(c.nodes)),
	}
	if s.Hold == 0 {
		s.Hold = 24 * time.Hour // the agent's own default
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	reading, readCtx := errgroup.WithContext(ctx)
	reading.Go(func() (err error) {
		s.Leases, s.Owners, err = invariant.ReadKeys(readCtx, client, c.EtcdPrefix())
		if err == nil && c.opts.v2() {
			var more []invariant.Lease
			more, err = c.keysV2(readCtx)
			s.Leases = append(s.Leases, more...)
		}
		return err
	})
	for i, n := range c.nodes {
		reading.Go(func() (err error) {
			s.Nodes[i], err = c.collect(n)
			return err
		})
	}
	err := reading.Wait()
	s.At = time.Now()
	return s, err
}

// collect reads one node.
func (c *Cluster) collect(n *Node) (invariant.Node, error) {
	if !n.On() {
		return invariant.Node{Name: n.Name(), Agent: invariant.Agent{Told: true}}, nil
	}
	got, err := invariant.Collect(n.Machine, c.device(n), n.driver.SubnetFile())
	if err != nil {
		return got, err
	}
	for _, p := range c.PodsOn(n.Name()) {
		if !p.NetNS.IsOpen() {
			continue // it has vanished
		}
		inside, err := invariant.CollectPod(p.Name, p.NetNS, pod.IfName)
		if err != nil {
			return got, err
		}
		got.Pods = append(got.Pods, inside)
	}
	got.Agent = c.agentState(n)
	return got, nil
}

// join puts the lease of a plain flannel peer into etcd, and takes it away again, and notes which nodes with
// a running agent and a lease did not follow in time.
func (c *Cluster) join(
	ctx context.Context,
	client *clientv3.Client,
	s invariant.Snapshot,
) (*invariant.Join, error) {
	if _, ok := c.waivers()["agent-makes-progress"]; ok {
		return nil, nil //nolint:nilnil // nobody was made to join, and nobody asks
	}
	j := &invariant.Join{Within: c.joinWithin(), Peer: invariant.Lease{
		Subnet: c.freeSubnet(s), PublicIP: c.freeAddress(s), Backend: c.opts.Backend,
	}}
	if c.hasDevice() {
		j.Peer.VNI, j.Peer.VtepMAC = c.opts.VNI, joinMAC
	}
	if !j.Peer.Subnet.IsValid() || !j.Peer.PublicIP.IsValid() {
		return nil, fmt.Errorf(
			"no subnet of %s or no address of %s is free for it",
			c.opts.Network,
			c.opts.Underlay,
		)
	}
	var followers []*Node
	for i, n := range c.nodes {
		leased := slices.ContainsFunc(s.Leases, func(l invariant.Lease) bool {
			return slices.Contains(s.Nodes[i].Addrs, l.PublicIP)
		})
		if leased && s.Nodes[i].Agent.Running {
			followers = append(followers, n)
		}
	}
	leave, err := c.putPeer(ctx, client, j.Peer)
	if err != nil {
		return nil, err
	}
	missing, err := c.await(ctx, followers, j, true)
	if err != nil {
		return nil, err
	}
	if err := leave(ctx); err != nil {
		return nil, fmt.Errorf("end its lease: %w", err)
	}
	stayed, err := c.await(ctx, followers, j, false)
	for i, n := range followers {
		j.Reactions = append(
			j.Reactions,
			invariant.Reaction{Node: n.Name(), Missing: missing[i], Stayed: stayed[i]},
		)
	}
	return j, err
}

// joinWithin is the longest that any of the cluster's agents may take to learn of a peer.
func (c *Cluster) joinWithin() time.Duration {
	for _, n := range c.nodes {
		if driver.Lacks(n.driver, driver.FeatureLeaseTTL) != nil {
			return foreignJoinWithin
		}
	}
	return joinWithin
}

// await waits until every node has the peer's entries, or has none of them, and returns those for which that
// is not so in time.
func (c *Cluster) await(
	ctx context.Context,
	nodes []*Node,
	j *invariant.Join,
	there bool,
) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Within)
	defer cancel()
	wrong := make([][]string, len(nodes))
	waiting, waitCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	for i, n := range nodes {
		waiting.Go(func() error {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				have, err := invariant.Overlay(n.Machine, c.device(n), c.opts.Network)
				if err != nil {
					return err
				}
				wrong[i] = slices.DeleteFunc(invariant.Entries(c.device(n), node.Uplink, j.Peer), func(e string) bool {
					return slices.Contains(have, e) == there
				})
				if len(wrong[i]) == 0 {
					return nil
				}
				select {
				case <-ctx.Done():
					return nil // in vain
				case <-waitCtx.Done():
					return waitCtx.Err()
				case <-tick.C:
				}
			}
		})
	}
	return wrong, waiting.Wait()
}

// freeSubnet returns a subnet that no lease and no record names: the first of the network if possible, which
// is never handed out.
func (c *Cluster) freeSubnet(s invariant.Snapshot) netip.Prefix {
	for a := c.opts.Network.Masked().Addr(); c.opts.Network.Contains(a); a = plus(a, 1<<(32-c.opts.SubnetLen)) {
		p := netip.PrefixFrom(a, c.opts.SubnetLen)
		taken := slices.ContainsFunc(s.Leases, func(l invariant.Lease) bool { return l.Subnet.Overlaps(p) }) ||
			slices.ContainsFunc(s.Owners, func(o invariant.Owner) bool { return o.Subnet.Overlaps(p) })
		if !taken {
			return p
		}
	}
	return netip.Prefix{}
}

// freeAddress returns an address of the underlay that nobody has and no lease names.
func (c *Cluster) freeAddress(s invariant.Snapshot) netip.Addr {
	for a := offset(c.opts.Underlay, 2); c.opts.Underlay.Contains(plus(a, 1)); a = a.Next() {
		taken := a == c.opts.Etcd || a == c.fabric.Gateway() ||
			slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.Addr() == a }) ||
			slices.ContainsFunc(s.Nodes, func(n invariant.Node) bool { return slices.Contains(n.Addrs, a) }) ||
			slices.ContainsFunc(s.Leases, func(l invariant.Lease) bool { return l.PublicIP == a }) ||
			slices.ContainsFunc(s.Owners, func(o invariant.Owner) bool { return o.PublicIP == a })
		if !taken {
			return a
		}
	}
	return netip.Addr{}
}

// output is what the programs on one node have written.
type output struct {
	lines         int
	panics, races []string
}

// maxBad is how many lines of a crash are kept of a node.
const maxBad = 5

func (c *Cluster) noteOutput(l node.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.output[l.Machine]
	if o == nil {
		o = &output{}
		c.output[l.Machine] = o
	}
	o.lines++
	if invariant.Panic(l.Text) && len(o.panics) < maxBad {
		o.panics = append(o.panics, l.Text)
	}
	if invariant.Race(l.Text) && len(o.races) < maxBad {
		o.races = append(o.races, l.Text)
	}
}
