package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/underlay"
)

// Partition has the switch drop every frame between some machines: nothing is refused, nothing is heard. The
// constructors beside it make the usual shapes.
type Partition struct {
	// ID is its row's, or one of its own; Custom if it is not set.
	ID    string
	Shape string
	// Nodes are those that it is about; all that Cut names if it is empty.
	Nodes []string
	// Cut lists who is not heard by whom: from, to.
	Cut [][2]string
}

// Isolated cuts a node off from every other node, and from etcd's members.
func Isolated(w World, name string) Partition {
	return Partition{
		"partition-node", name + " isolated",
		[]string{name},
		bothWays([]string{name}, without(everybody(w), name)),
	}
}

// Deaf cuts one way: others do not hear a node, which hears them.
func Deaf(w World, name string) Partition {
	p := Partition{ID: "partition-one-way", Shape: name + " not heard", Nodes: []string{name}}
	for _, to := range without(everybody(w), name) {
		p.Cut = append(p.Cut, [2]string{name, to})
	}
	return p
}

// Halves cuts the nodes into two halves; etcd stays with the first.
func Halves(w World) Partition {
	nodes := w.Nodes()
	first := nodes[:(len(nodes)+1)/2]
	return Partition{
		"partition-halves",
		"nodes cut into halves",
		nodes,
		bothWays(without(everybody(w), nodes[len(first):]...), nodes[len(first):]),
	}
}

// Ring leaves each node its two neighbours in the order of names, the last being the first one's; etcd is
// heard by all. It takes four nodes to be a cut at all.
func Ring(w World) Partition {
	nodes := w.Nodes()
	p := Partition{ID: "partition-ring", Shape: "nodes cut into a ring", Nodes: nodes}
	for i, a := range nodes {
		for j, b := range nodes {
			if d := (j - i + len(nodes)) % len(nodes); d > 1 && d < len(nodes)-1 {
				p.Cut = append(p.Cut, [2]string{a, b})
			}
		}
	}
	return p
}

// everybody lists the nodes and the machines of etcd.
func everybody(w World) []string {
	all := slices.Clone(w.Nodes())
	for _, m := range w.Etcd().Members() {
		all = append(all, m.Machine().Name())
	}
	return all
}

func without(all []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(names, n) })
}

func bothWays(a, b []string) (cut [][2]string) {
	for _, x := range a {
		for _, y := range b {
			cut = append(cut, [2]string{x, y}, [2]string{y, x})
		}
	}
	return cut
}

// Name implements Fault.
func (f Partition) Name() string { return "partition: " + f.Shape }

// Identity implements Fault. One that no constructor has made is told from others by what it cuts.
func (f Partition) Identity() Identity {
	nodes, ways := slices.Clone(f.Nodes), make([]string, len(f.Cut))
	for i, way := range f.Cut {
		ways[i] = way[0] + ">" + way[1]
		if len(f.Nodes) == 0 {
			nodes = append(nodes, way[:]...)
		}
	}
	slices.Sort(nodes)
	i := at(f.ID, slices.Compact(nodes)...)
	if _, ok := Find(f.ID); !ok {
		i = i.with("cut", strings.Join(ways, " "))
	}
	i.Component = ComponentNode
	return i
}

// Available implements Limited.
func (f Partition) Available(World) error {
	if len(f.Cut) == 0 {
		return fmt.Errorf("%s: there are too few nodes for this to cut anything", f.Shape)
	}
	return nil
}

// Mechanism implements Mechanical.
func (f Partition) Mechanism() string { return "nftables in the bridge family" }

// Inject implements Fault. The proof is that the switch has dropped a frame of each that is not heard.
func (f Partition) Inject(ctx context.Context, w *Injection) error {
	if err := f.Available(w); err != nil {
		return err
	}
	machines := map[string]*node.Machine{}
	var drops []underlay.Drop
	for _, way := range f.Cut {
		drops = append(drops, underlay.Drop{From: way[0], To: way[1]})
		for _, name := range way {
			m, err := machineOf(w, name)
			if err != nil {
				return err
			}
			machines[name] = m
		}
	}
	w.OnHeal(func(context.Context) error { return w.Switch().Pass(w.Holder()) })
	if err := w.Switch().Drop(w.Holder(), drops...); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "the switch drops what is cut", func(ctx context.Context) (bool, error) {
		counts, err := w.Switch().DroppedBy(w.Holder())
		if err != nil {
			return false, err
		}
		silent := 0
		for i, n := range counts {
			if n == 0 {
				silent++
				_ = chatter(ctx, machines[f.Cut[i][0]], machines[f.Cut[i][1]]) // tried again at the next tick
			}
		}
		if silent > 0 {
			return false, fmt.Errorf("%d of %d ways have dropped nothing yet", silent, len(counts))
		}
		return true, nil
	})
}

// machineOf finds the machine of a node or of a member of etcd.
func machineOf(w World, name string) (*node.Machine, error) {
	for _, m := range w.Etcd().Members() {
		if m.Machine().Name() == name {
			return m.Machine(), nil
		}
	}
	return w.Machine(name)
}

// EtcdBlackHole swallows what a node and etcd say to each other once they are connected: connecting works,
// and nothing after it, on connections old and new.
type EtcdBlackHole struct{ Node string }

// Name implements Fault.
func (f EtcdBlackHole) Name() string { return "connections of " + f.Node + " to etcd swallowed" }

// Identity implements Fault.
func (f EtcdBlackHole) Identity() Identity { return at("etcd-black-hole", f.Node) }

// Mechanism implements Mechanical.
func (f EtcdBlackHole) Mechanism() string { return "nftables in the bridge family" }

// Inject implements Fault. The proof is that the switch drops segments, and that the node can still connect.
func (f EtcdBlackHole) Inject(ctx context.Context, w *Injection) error {
	if _, err := w.Machine(f.Node); err != nil {
		return err
	}
	var drops []underlay.Drop
	for _, m := range w.Etcd().Members() {
		port := m.Machine().Name()
		drops = append(drops, underlay.Drop{From: f.Node, To: port, Established: true},
			underlay.Drop{From: port, To: f.Node, Established: true})
	}
	w.OnHeal(func(context.Context) error { return w.Switch().Pass(w.Holder()) })
	if err := w.Switch().Drop(w.Holder(), drops...); err != nil {
		return err
	}
	return prove(
		ctx,
		proofWithin,
		"a connection is made and swallowed",
		func(ctx context.Context) (bool, error) {
			if err := dialEtcd(ctx, w, f.Node); err != nil {
				return false, err
			}
			counts, err := w.Switch().DroppedBy(w.Holder())
			return err == nil && slices.Max(counts) > 0, err
		},
	)
}

// MTUBlackHole swallows packets from and to a node that are longer than Size bytes, without the ICMP message
// that would say so (RFC 2923, 2.1).
type MTUBlackHole struct {
	Node string
	Size int
}

// Name implements Fault.
func (f MTUBlackHole) Name() string {
	return fmt.Sprintf("packets over %d bytes swallowed at %s", f.Size, f.Node)
}

// Identity implements Fault.
func (f MTUBlackHole) Identity() Identity { return at("mtu-black-hole", f.Node).with("size", f.Size) }

// Mechanism implements Mechanical.
func (f MTUBlackHole) Mechanism() string { return "nftables in the bridge family" }

// Inject implements Fault. The proof is that the switch drops a long datagram both ways.
func (f MTUBlackHole) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	other := w.Etcd().Machine()
	w.OnHeal(func(context.Context) error { return w.Switch().Pass(w.Holder()) })
	err = w.Switch().Drop(w.Holder(), underlay.Drop{From: f.Node, LongerThan: f.Size},
		underlay.Drop{To: f.Node, LongerThan: f.Size})
	if err != nil {
		return err
	}
	return prove(ctx, proofWithin, "the switch drops long packets", func(ctx context.Context) (bool, error) {
		const headers = 20 + 8 // IPv4 and UDP
		_ = say(ctx, machine, other, f.Size+1-headers)
		_ = say(ctx, other, machine, f.Size+1-headers) // tried again at the next tick
		counts, err := w.Switch().DroppedBy(w.Holder())
		return err == nil && slices.Min(counts) > 0, err
	})
}
