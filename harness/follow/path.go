// Package follow follows one packet through a world, hop by hop, and says where and why it died.
//
// It sends one marked ICMP echo from a pod or a node to another, and listens with a packet socket in every
// network namespace on the way: the pod's link, its veth on the node, the bridge, the VXLAN device, the
// uplink, the ports of the switch, and the same on the other side, for the request and for the reply. Where
// rules decide, it has nftables trace the packet, so that the rule that dropped it can be named. Then it
// reads what the kernels hold, and Explain, a pure function, makes one sentence of it all:
//
//	trace, err := follow.Follow(ctx, path)
//	fmt.Println(trace.Sentence) // request dropped on node02 by rule "ip daddr 172.16.0.0/16 drop" in chain …
//
// It needs no more than the sandbox gives; only the kernel's own drop reasons need root.
package follow

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/reports/record"
)

// SwitchName is the place of hops on the switch between the machines.
const SwitchName = "switch"

// Directions of a packet on its way, as the record tells them.
const (
	Request = record.Request
	Reply   = record.Reply
)

// Node is a machine that a packet may pass.
type Node struct {
	Name string `json:"name"`
	// Addr is the address of its uplink.
	Addr netip.Addr `json:"addr"`
	// Bridge is the bridge of its pods ("cni0"), Device the VXLAN device ("flannel.1"; empty for an overlay
	// without one), Uplink its link to the switch ("eth0") and Port the far end of that, on the switch.
	Bridge string `json:"bridge"`
	Device string `json:"device"`
	Uplink string `json:"uplink"`
	Port   string `json:"port"`
	// NS is its network namespace.
	NS netns.NsHandle `json:"-"`
}

// End is where a packet starts or should arrive.
type End struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
	// Node is the name of the node on which a pod runs; for a node itself, its own name.
	Node string `json:"node"`
	// Device is a pod's link ("eth0"); empty for a node itself.
	Device string `json:"device"`
	// NS is a pod's network namespace; a node has its own.
	NS netns.NsHandle `json:"-"`
}

// IsPod tells a pod from a node.
func (e End) IsPod() bool { return e.Device != "" }

// Path is who talks to whom, over what.
type Path struct {
	From, To End
	// Nodes are those of the world. Those of both ends must be among them.
	Nodes []Node
	// Switch is the network namespace of the switch, in which the ports of the nodes are.
	Switch netns.NsHandle
	// Leases are the owners of the overlay's subnets as etcd has them; may be empty when it is away.
	Leases []flannelkeys.Lease
	// Size is the length of the IP packet in bytes, which then must not be fragmented; 0 for a small one.
	Size int
	// Wait bounds how long the echo is waited for. Default 2.3 s: the kernel asks for an unknown neighbour
	// three times, one second apart (net/core/neighbour.c).
	Wait time.Duration
}

// Hop is a place on the packet's way.
type Hop struct {
	// Node is the pod, the node or SwitchName.
	Node   string `json:"node"`
	Device string `json:"device"`
	// Direction is Request or Reply, and Out says that the packet leaves the node there.
	Direction string `json:"direction"`
	Out       bool   `json:"out"`
	// Seen says that the packet was there, first at At.
	Seen bool      `json:"seen"`
	At   time.Time `json:"at,omitzero"`
}

// Verdict is what became of a packet.
type Verdict struct {
	// Cause is stable over versions; Sentence is for people.
	Cause    Cause  `json:"cause"`
	Sentence string `json:"sentence"`
	// Direction says which of the two was lost, Node and Device where. Empty for an echo that was answered.
	Direction string `json:"direction"`
	Node      string `json:"node"`
	Device    string `json:"device"`
}

// Trace is an echo that was followed.
type Trace struct {
	// From and To are the names of the ends.
	From, To string
	Verdict
	// Hops are the places of the expected way, of the request and then of the reply. Those of a reply to a
	// request that did not arrive are left out.
	Hops []Hop
	// ICMP are the errors about the packet that were seen anywhere.
	ICMP []ICMPError
	// Notes say what could not be observed, such as drop reasons without root.
	Notes []string
	// Observation is what the verdict was made from.
	Observation Observation
}

// Observation is everything that Explain judges. It holds no handles, so that it can be kept and judged
// again.
type Observation struct {
	From, To End
	Nodes    []Node
	Leases   []flannelkeys.Lease
	// Size is the length of the packet that must not be fragmented; 0 for a small one.
	Size int
	// SendError is what the kernel said when the echo was sent, such as "network is unreachable"; "" when
	// nothing. Answered says that the sender's socket got the reply.
	SendError string
	Answered  bool
	// Sightings are the packet wherever it was seen, in order of time.
	Sightings []Sighting
	// ICMP are the errors that quote it, each once.
	ICMP []ICMPError
	// ARP is who asked for whom meanwhile.
	ARP []ARP
	// Rules are the decisions of nftables about it.
	Rules []RuleVerdict
	// Drops are the kernel's own words, where it gave them.
	Drops []Drop
	// State is what the kernels hold, by the name of the pod or node, and SwitchName.
	State map[string]observe.State
}

// Sighting is the packet at one device at one moment.
type Sighting struct {
	// Place is a pod, a node or SwitchName.
	Place  string    `json:"place"`
	Device string    `json:"device"`
	At     time.Time `json:"at"`
	// Out says that it left there. OtherHost says that its Ethernet address is none of the device's own.
	Out       bool   `json:"out"`
	OtherHost bool   `json:"other_host"`
	Direction string `json:"direction"`
	// Src, Dst, TTL and Length are those of the echo's own IP header.
	Src    netip.Addr `json:"src"`
	Dst    netip.Addr `json:"dst"`
	TTL    int        `json:"ttl"`
	Length int        `json:"length"`
	// SrcMAC and DstMAC are those of the Ethernet header before the echo's IP header.
	SrcMAC string `json:"src_mac"`
	DstMAC string `json:"dst_mac"`
	// Tunnel is set where it was seen inside VXLAN.
	Tunnel *Tunnel `json:"tunnel,omitempty"`
	// Frame is the whole frame as it was captured.
	Frame []byte `json:"-"`
}

// Tunnel is the outside of a packet in VXLAN (RFC 7348).
type Tunnel struct {
	Src  netip.Addr `json:"src"`
	Dst  netip.Addr `json:"dst"`
	Port int        `json:"port"`
	VNI  int        `json:"vni"`
}

// ICMPError is an error message about the packet (RFC 792).
type ICMPError struct {
	At time.Time `json:"at"`
	// Place and Device are where it was seen first; Reporter sent it to Target.
	Place    string     `json:"place"`
	Device   string     `json:"device"`
	Reporter netip.Addr `json:"reporter"`
	Target   netip.Addr `json:"target"`
	Type     int        `json:"type"`
	Code     int        `json:"code"`
	// Direction says which of the two it is about. MTU is that of the next hop, for type 3 code 4 (RFC 1191).
	Direction string `json:"direction"`
	MTU       int    `json:"mtu,omitempty"`
}

// ARP is one ARP packet for IPv4 that was seen meanwhile (RFC 826).
type ARP struct {
	At      time.Time  `json:"at"`
	Place   string     `json:"place"`
	Device  string     `json:"device"`
	Out     bool       `json:"out"`
	Request bool       `json:"request"`
	Sender  netip.Addr `json:"sender"`
	Target  netip.Addr `json:"target"`
}

// RuleVerdict is one message of nftables' trace about the packet.
type RuleVerdict struct {
	Place     string `json:"place"`
	Direction string `json:"direction"`
	// Family, Table, Chain and Handle name the rule; Handle is 0 for a policy.
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	Handle uint64 `json:"handle"`
	// Drop says that the packet ended there.
	Drop bool `json:"drop"`
}

// Drop is the kernel's own reason for freeing the packet (include/net/dropreason-core.h).
type Drop struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}
