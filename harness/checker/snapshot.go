package checker

import (
	"net/netip"
	"time"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/observe"
)

// Snapshot is all that the invariants judge: what etcd, the kernels, the disks and the agents of a world
// hold.
type Snapshot struct {
	At time.Time
	// Network is the overlay's, SubnetLen the length of a node's subnet, Backend how packets are carried, VNI
	// the network's identifier where that is VXLAN.
	Network   netip.Prefix
	SubnetLen int
	Backend   string
	VNI       int
	// Hold is how long an owner's record explains kernel entries after the lease of its last renewal ended.
	Hold   time.Duration
	Leases []flannelkeys.Lease
	Owners []flannelkeys.Owner
	Nodes  []Node
	// Join is what a peer that joined and left brought about; nil if none was made to.
	Join *Join
	// Unasked are the invariants that cannot be judged, since an agent lacks what they are about, by id, each
	// with the reason.
	Unasked map[string]string
	// Left lists what a closed world left in the sandbox.
	Left []string
}

// The backends that the invariants know.
const (
	VXLAN  = "vxlan"
	HostGW = "host-gw" // routes by way of the peers' own addresses, without a device
)

// Node is one machine with its agent and pods.
type Node struct {
	Name string
	// Addrs are the uplink's addresses, Uplink its name.
	Addrs  []netip.Addr
	Uplink string
	// Device is the name of the overlay's device and MAC its address, "" if there is no such device.
	Device, MAC string
	// Routes are those of IPv4 in the main table, but for default routes.
	Routes []observe.Route
	// Neighbours and FDB are the permanent entries of the device, the first of IPv4.
	Neighbours, FDB []observe.Neighbour
	// Gateway is what the subnet file names, invalid if there is no such file.
	Gateway netip.Prefix
	// Bridge are the addresses of cni0 and HasBridge says whether it is there.
	Bridge    []netip.Prefix
	HasBridge bool
	// Veths are those on the node other than its uplink.
	Veths        []observe.Link
	Pods         []Pod
	Reservations []Reservation
	Rules        []observe.Rule
	Agent        Agent
}

// Pod is a pod that is there.
type Pod struct {
	Name  string
	Addrs []netip.Addr
	// Peer is the index of the veth on the node that its interface leads to.
	Peer int
}

// Reservation is an address that host-local has given to a container.
type Reservation struct {
	Network   string
	Addr      netip.Addr
	Container string
}

// Agent is what a node's agent has done since the world was built.
type Agent struct {
	// Running says that its process is there, Told that it was signalled to end, or never started: then nothing
	// is asked of it.
	Running, Told bool
	// End says how it ended if it did.
	End string
	// Records says that it follows owners' records (ours does, flannel does not).
	Records bool
	// Lines is how many lines it has written in Age.
	Lines int
	Age   time.Duration
	// Panics and Races are the lines in which it reported one.
	Panics, Races []string
}

// Join is what a plain flannel peer that joined, and left again, brought about on each node.
type Join struct {
	Peer      flannelkeys.Lease
	Within    time.Duration
	Reactions []Reaction
}

// Reaction is what one node did not do in time.
type Reaction struct {
	Node string
	// Missing entries did not appear after the peer joined; Stayed did not go after it left.
	Missing, Stayed []string
}

// lease returns the node's lease, by public address.
func (s Snapshot) lease(n Node) (flannelkeys.Lease, bool) {
	for _, l := range s.Leases {
		if n.has(l.PublicIP) {
			return l, true
		}
	}
	return flannelkeys.Lease{}, false
}

func (n Node) has(a netip.Addr) bool {
	for _, own := range n.Addrs {
		if own == a {
			return true
		}
	}
	return false
}

// working returns the nodes whose agent runs and that have a lease, each with it: those whose kernel is
// judged.
// What the kernel of a node without an agent holds is nobody's promise.
func (s Snapshot) working() (nodes []Node, leases []flannelkeys.Lease) {
	for _, n := range s.Nodes {
		if l, ok := s.lease(n); ok && n.Agent.Running {
			nodes, leases = append(nodes, n), append(leases, l)
		}
	}
	return nodes, leases
}

// keyOf names a lease in sentences.
func keyOf(l flannelkeys.Lease) string { return "subnets/" + flannelkeys.Key(l.Subnet, l.Subnet6) }
