package checker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/underlay"
	"github.com/nemesh/nemesh/harness/wait"
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
	// peerTTL is how long the lease of a peer that joins lives should nobody end it.
	peerTTL = time.Minute
	// joinMAC is the VTEP MAC of the peer that joins and leaves; nobody has it.
	joinMAC = "02:6e:65:6d:65:73"
)

// Checker judges one cluster: at rest, and by what it leaves behind.
type Checker struct {
	c     *cluster.Cluster
	links []string // of the sandbox, before there was a cluster
	live  []Live

	held   *Traces // of the cluster, taken when it is closed
	unheld error

	mu     sync.Mutex
	output map[string]*output // by machine
	waived map[string]string  // why an invariant may be broken, by its id
}

// New makes a checker for a cluster that is not built yet, whose links in the sandbox it can tell by that.
// It judges by a suite's own invariants as well.
func New(live ...Live) (*Checker, error) {
	links, err := SandboxLinks()
	return &Checker{links: links, live: live, output: map[string]*output{}, waived: map[string]string{}}, err
}

// Watch has the checker hear what the cluster's programs write; it is for cluster.New.
func (k *Checker) Watch(c *cluster.Cluster) {
	k.c = c
	c.OnOutput(k.noteOutput)
	c.OnClose(func() { k.held, k.unheld = k.traces() })
}

// Waive says that the scenario means to break an invariant, and why: its violations are recorded and do not
// fail it. An id that there is not, or no reason, is an error.
func (k *Checker) Waive(id, why string) error {
	if own := slices.ContainsFunc(k.live, func(v Live) bool { return v.ID == id }); !own {
		if _, err := Find(id); err != nil {
			return err
		}
	}
	if why == "" {
		return fmt.Errorf("invariant %s is waived without a reason: give one", id)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waived[id] = why
	return nil
}

// AtRest ends the mesh, heals what is still broken, waits for rest, and judges the cluster by every
// invariant. Rest is the moment at which all hold that are not waived, 10 s later at most. Then a plain
// flannel peer is made to join and to leave. Every result is recorded. The error says why nothing could be
// judged.
//
// Nothing is asked of an agent that was told to end, or of the kernel of its node.
func (k *Checker) AtRest(ctx context.Context) ([]Result, error) {
	k.c.EndMesh()
	if err := k.c.Mend(ctx); err != nil {
		return nil, fmt.Errorf("heal before the invariants are checked: %w", err)
	}
	s, live, err := k.waitRest(ctx)
	if err != nil {
		return nil, fmt.Errorf("check the invariants: %w", err)
	}
	if s.Join, err = k.join(ctx, s); err != nil {
		return nil, fmt.Errorf("have a peer join: %w", err)
	}
	results := append(Check(s, k.waivers()), live...)
	for _, r := range results {
		k.writeInvariant(r)
	}
	return results, nil
}

// waivers are what the agents of the cluster never promised, and what the scenario means to break.
func (k *Checker) waivers() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	waived := map[string]string{}
	for _, n := range k.c.AllNodes() {
		maps.Copy(waived, driver.Waives(n.Driver()))
	}
	for id, why := range k.waived {
		waived[id] = why
	}
	return waived
}

func (k *Checker) writeInvariant(r Result) {
	details := r.Violations
	if r.Waived {
		details = append([]string{"waived: " + r.Why}, details...)
	}
	k.c.Record().Write(record.Event{
		Kind:      record.KindInvariant,
		Invariant: &record.Invariant{Name: r.ID, OK: r.OK, Waived: r.Waived, Details: details},
	})
}

// waitRest takes snapshots until one violates nothing that is not waived, or the time for that is over.
// It returns the last one, and how the suite's own invariants were judged with it.
func (k *Checker) waitRest(ctx context.Context) (Snapshot, []Result, error) {
	var s Snapshot
	var live []Result
	var unread error
	_ = wait.Within(ctx, restWithin, 20*time.Millisecond, func(context.Context) error {
		if s, unread = k.Snapshot(ctx); unread != nil {
			return unread
		}
		if live, unread = k.look(ctx, s); unread != nil {
			return unread
		}
		if text := Failures(append(Check(s, k.waivers()), live...)); text != "" {
			return errors.New(text)
		}
		return nil
	}) // what is not right by then is judged
	return s, live, errors.Join(unread, ctx.Err())
}

// Snapshot reads all that the invariants judge, as it is now. Of a lease or a record without an IPv4 subnet
// nothing is judged.
func (k *Checker) Snapshot(ctx context.Context) (Snapshot, error) {
	o := k.c.Options()
	s := Snapshot{
		Network: o.Network, SubnetLen: o.SubnetLen, Backend: o.Backend, VNI: o.VNI, Hold: o.PeerHold,
		Nodes: make([]Node, len(k.c.AllNodes())), Unasked: k.unasked(),
	}
	if s.Hold == 0 {
		s.Hold = 24 * time.Hour // the agent's own default
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	reading, readCtx := errgroup.WithContext(ctx)
	reading.Go(func() (err error) {
		if k.c.Lacks(driver.FeatureLeases) != nil {
			return nil
		}
		s.Leases, err = k.c.Leases(readCtx)
		s.Leases = slices.DeleteFunc(s.Leases, func(l flannelkeys.Lease) bool { return !l.Subnet.IsValid() })
		return err
	})
	reading.Go(func() (err error) {
		if k.c.Lacks(driver.FeatureKeys) != nil {
			return nil
		}
		s.Owners, err = k.c.Control().Owners(readCtx)
		s.Owners = slices.DeleteFunc(s.Owners, func(o flannelkeys.Owner) bool { return !o.Subnet.IsValid() })
		return err
	})
	for i, n := range k.c.AllNodes() {
		reading.Go(func() (err error) {
			s.Nodes[i], err = k.collect(n)
			return err
		})
	}
	err := reading.Wait()
	s.At = time.Now()
	return s, err
}

// collect reads one node.
func (k *Checker) collect(n *cluster.Node) (Node, error) {
	if !n.On() {
		return Node{Name: n.Name(), Agent: Agent{Told: true}}, nil
	}
	got, err := Collect(n.Machine, n.Device(), n.Driver().SubnetFile())
	if err != nil {
		return got, err
	}
	for _, p := range k.c.PodsOn(n.Name()) {
		if !p.NetNS.IsOpen() {
			continue // it has vanished
		}
		inside, err := CollectPod(p.Name, p.NetNS, pod.IfName)
		if err != nil {
			return got, err
		}
		got.Pods = append(got.Pods, inside)
	}
	got.Agent = k.agentState(n)
	return got, nil
}

// join puts the lease of a plain flannel peer into etcd, and takes it away again, and notes which nodes with
// a running agent and a lease did not follow in time.
func (k *Checker) join(
	ctx context.Context,
	s Snapshot,
) (*Join, error) {
	const asked = "agent-makes-progress"
	_, waived := k.waivers()[asked]
	if _, ok := s.Unasked[asked]; ok || waived {
		return nil, nil //nolint:nilnil // nobody was made to join, and nobody asks
	}
	j := &Join{Within: k.joinWithin(), Peer: flannelkeys.Lease{
		Subnet: k.freeSubnet(s), PublicIP: k.freeAddress(s), Backend: k.c.Options().Backend,
	}}
	if k.c.HasDevice() {
		j.Peer.VNI, j.Peer.VtepMAC = k.c.Options().VNI, joinMAC
	}
	if !j.Peer.Subnet.IsValid() || !j.Peer.PublicIP.IsValid() {
		return nil, fmt.Errorf(
			"no subnet of %s or no address of %s is free for it",
			k.c.Options().Network,
			k.c.Options().Underlay,
		)
	}
	var followers []*cluster.Node
	for i, n := range k.c.AllNodes() {
		leased := slices.ContainsFunc(s.Leases, func(l flannelkeys.Lease) bool {
			return slices.Contains(s.Nodes[i].Addrs, l.PublicIP)
		})
		if leased && s.Nodes[i].Agent.Running {
			followers = append(followers, n)
		}
	}
	leave, err := k.c.Control().GiveAway(ctx, j.Peer, peerTTL)
	if err != nil {
		return nil, err
	}
	missing, err := k.await(ctx, followers, j, true)
	if left := leave(context.WithoutCancel(ctx)); left != nil {
		err = errors.Join(err, fmt.Errorf("end its lease: %w", left))
	}
	if err != nil {
		return nil, err
	}
	stayed, err := k.await(ctx, followers, j, false)
	for i, n := range followers {
		j.Reactions = append(
			j.Reactions,
			Reaction{Node: n.Name(), Missing: missing[i], Stayed: stayed[i]},
		)
	}
	return j, err
}

// joinWithin is the longest that any of the cluster's agents may take to learn of a peer.
func (k *Checker) joinWithin() time.Duration {
	for _, n := range k.c.AllNodes() {
		if driver.Lacks(n.Driver(), driver.FeatureLeaseTTL) != nil {
			return foreignJoinWithin
		}
	}
	return joinWithin
}

// await waits until every node has the peer's entries, or has none of them, and returns those for which that
// is not so in time.
func (k *Checker) await(
	ctx context.Context,
	nodes []*cluster.Node,
	j *Join,
	there bool,
) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Within)
	defer cancel()
	wrong := make([][]string, len(nodes))
	var waiting errgroup.Group
	for i, n := range nodes {
		waiting.Go(func() error {
			var unread error
			_ = wait.Until(ctx, 5*time.Millisecond, func(context.Context) error {
				var have []string
				if have, unread = Overlay(n.Machine, n.Device(), k.c.Options().Network); unread != nil {
					return wait.GiveUp(unread)
				}
				wrong[i] = slices.DeleteFunc(Entries(n.Device(), node.Uplink, j.Peer), func(e string) bool {
					return slices.Contains(have, e) == there
				})
				if len(wrong[i]) > 0 {
					return errors.New("not yet")
				}
				return nil
			}) // what is wrong by then is judged
			return unread
		})
	}
	return wrong, waiting.Wait()
}

// freeSubnet returns a subnet that no lease and no record names: the first of the network if possible, which
// is never handed out.
func (k *Checker) freeSubnet(s Snapshot) netip.Prefix {
	network, bits := k.c.Options().Network, k.c.Options().SubnetLen
	for a := network.Masked().Addr(); network.Contains(a); a = underlay.Plus(a, 1<<(32-bits)) {
		p := netip.PrefixFrom(a, bits)
		taken := slices.ContainsFunc(s.Leases, func(l flannelkeys.Lease) bool { return l.Subnet.Overlaps(p) }) ||
			slices.ContainsFunc(s.Owners, func(o flannelkeys.Owner) bool { return o.Subnet.Overlaps(p) })
		if !taken {
			return p
		}
	}
	return netip.Prefix{}
}

// freeAddress returns an address of the underlay that nobody has and no lease names.
func (k *Checker) freeAddress(s Snapshot) netip.Addr {
	network := k.c.Options().Underlay
	for a := underlay.Nth(network, 2); network.Contains(underlay.Plus(a, 1)); a = a.Next() {
		taken := a == k.c.Options().Etcd || a == k.c.Switch().Gateway() ||
			slices.ContainsFunc(k.c.AllNodes(), func(n *cluster.Node) bool { return n.Addr() == a }) ||
			slices.ContainsFunc(s.Nodes, func(n Node) bool { return slices.Contains(n.Addrs, a) }) ||
			slices.ContainsFunc(s.Leases, func(l flannelkeys.Lease) bool { return l.PublicIP == a }) ||
			slices.ContainsFunc(s.Owners, func(o flannelkeys.Owner) bool { return o.PublicIP == a })
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

func (k *Checker) noteOutput(l node.Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.output[l.Machine]
	if o == nil {
		o = &output{}
		k.output[l.Machine] = o
	}
	o.lines++
	if Panic(l.Text) && len(o.panics) < maxBad {
		o.panics = append(o.panics, l.Text)
	}
	if Race(l.Text) && len(o.races) < maxBad {
		o.races = append(o.races, l.Text)
	}
}
