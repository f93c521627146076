package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/underlay"
)

// Backends.
const (
	BackendVXLAN  = "vxlan"
	BackendHostGW = "host-gw"
)

// Options describe a cluster. The zero value of each field stands for the default beside it.
type Options struct {
	// Nodes is how many nodes there are: node01, node02, … Default 4.
	Nodes int
	// PodsPerNode is how many pods each node is given at start. Default 1; -1 for none.
	PodsPerNode int
	// Underlay is the network between the machines. Default 192.168.200.0/24.
	Underlay netip.Prefix
	// FirstNode is node01's address; the others follow it. Default: the 201st address of the underlay.
	FirstNode netip.Addr
	// Etcd is the etcd member's address. Default: the 10th address of the underlay.
	Etcd netip.Addr
	// EtcdMembers is how many members etcd has: etcd, etcd2, …, at addresses that follow Etcd. Default 1.
	EtcdMembers int
	// EtcdTLS has etcd speak TLS and tell its clients apart by their certificates, which are made at start:
	// agents may read and write the overlay's keys, and nothing else.
	EtcdTLS bool
	// EtcdEndpoints are given to the agents before the real one, such as dead ones.
	EtcdEndpoints []string
	// Network is what the overlay hands out to nodes. Default 172.16.0.0/16.
	Network netip.Prefix
	// SubnetLen is the prefix length of a node's subnet. Default 24.
	SubnetLen int
	// Backend is how the overlay carries packets: BackendVXLAN, the default, or BackendHostGW.
	Backend string
	// NFTables asks in the network configuration for rules of nftables instead of iptables (EnableNFTables).
	NFTables bool
	// IPv6 makes the cluster dual-stack: machines have an address of Underlay6 beside their IPv4 one, and nodes
	// are handed out subnets of Network6 as well. NoIPv6 names nodes whose uplink has no IPv6 address.
	IPv6   bool
	NoIPv6 []string
	// EtcdBinary is an etcd server to run as the control plane, 3.4 or newer. Default: the one built in.
	EtcdBinary string
	// VNI is the VXLAN network identifier (RFC 7348). Default 1.
	VNI int
	// Port is the VXLAN's UDP port. Default 8472, which is the kernel's.
	Port int
	// Agent is the overlay under test. There is no default.
	Agent driver.Driver
	// AgentOf replaces Agent on the named nodes.
	AgentOf map[string]driver.Driver
	// Idle names nodes on which no agent is started.
	Idle []string
	// LeaseTTL is how long a subnet lease lives unless renewed. Default 1 h: no scenario outlives it unless it
	// asks to. etcd rounds up to whole seconds.
	LeaseTTL time.Duration
	// PeerHold is how long an agent keeps a peer whose lease has ended. Default: the agent's own.
	PeerHold time.Duration
	// Resync is how often an agent compares the kernel with what it should be. Default 10 s.
	Resync time.Duration
	// ProbeInterval is the time between two echoes of a pair. Default 20 ms: an outage is known to 25 ms
	// (probe.Outage), and a mesh of a dozen pairs takes a tenth of a processor.
	ProbeInterval time.Duration
}

// withDefaults fills the fields that are zero.
func (o Options) withDefaults() Options {
	setDefault(&o.Nodes, 4)
	setDefault(&o.PodsPerNode, 1)
	setDefault(&o.Underlay, netip.MustParsePrefix("192.168.200.0/24"))
	setDefault(&o.FirstNode, underlay.Nth(o.Underlay, 201))
	setDefault(&o.Etcd, underlay.Nth(o.Underlay, 10))
	setDefault(&o.EtcdMembers, 1)
	setDefault(&o.Network, netip.MustParsePrefix("172.16.0.0/16"))
	setDefault(&o.SubnetLen, 24)
	setDefault(&o.Backend, BackendVXLAN)
	setDefault(&o.VNI, 1)
	setDefault(&o.Port, 8472)
	setDefault(&o.LeaseTTL, time.Hour)
	setDefault(&o.Resync, 10*time.Second)
	setDefault(&o.ProbeInterval, 20*time.Millisecond)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports everything that keeps the described cluster from being built, one line each.
func (o Options) validate() error {
	if o.Nodes < 1 {
		return fmt.Errorf("a cluster of %d nodes: ask for at least 1", o.Nodes)
	}
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	gateway, last := underlay.Nth(o.Underlay, 1), underlay.Plus(o.FirstNode, o.Nodes-1)
	nodes := func(a netip.Addr) bool { return a.Compare(o.FirstNode) >= 0 && a.Compare(last) <= 0 }
	if !o.Underlay.Contains(o.FirstNode) || !o.Underlay.Contains(last) ||
		underlay.Plus(last, 1) == o.FirstNode ||
		(o.Underlay.Addr().Is4() && !o.Underlay.Contains(underlay.Plus(last, 1))) {
		refuse("%d nodes from %s on do not fit into the underlay %s: choose a larger Underlay, such as %s, "+
			"or a lower FirstNode", o.Nodes, o.FirstNode, o.Underlay,
			netip.PrefixFrom(o.Underlay.Addr(), 16).Masked())
	}
	if !o.Underlay.Contains(o.Etcd) {
		refuse("etcd's address %s is outside the underlay %s", o.Etcd, o.Underlay)
	}
	if nodes(o.Etcd) {
		refuse("etcd's address %s is also a node's (%s to %s): move Etcd or FirstNode", o.Etcd, o.FirstNode, last)
	}
	if o.Etcd == gateway || nodes(gateway) {
		refuse("%s is the switch's own address: move Etcd or FirstNode off it", gateway)
	}
	for i := 1; i < o.EtcdMembers; i++ {
		if a := underlay.Plus(o.Etcd, i); nodes(a) || a == gateway || !o.Underlay.Contains(a) {
			refuse("etcd member %d would have the address %s, which is not free: move Etcd", i+1, a)
		}
	}
	if o.EtcdMembers < 0 {
		refuse("etcd cannot have %d members", o.EtcdMembers)
	}
	if o.Network.Overlaps(o.Underlay) {
		refuse("the overlay's network %s overlaps the underlay %s: pods and machines would share addresses",
			o.Network, o.Underlay)
	}
	if o.SubnetLen < o.Network.Bits()+2 || o.SubnetLen > 30 {
		refuse("SubnetLen %d does not suit the network %s: it must be %d to 30", o.SubnetLen, o.Network,
			o.Network.Bits()+2)
	} else if room := 1<<(o.SubnetLen-o.Network.Bits()) - 1; room < o.Nodes-len(o.Idle) {
		// The first subnet is never handed out (SubnetMin is the second one by default).
		refuse("the network %s has room for %d subnets of /%d but there are %d nodes: choose a larger Network "+
			"or a longer SubnetLen", o.Network, room, o.SubnetLen, o.Nodes)
	}
	if o.Backend != BackendVXLAN && o.Backend != BackendHostGW {
		refuse("backend %q is not known: %s or %s", o.Backend, BackendVXLAN, BackendHostGW)
	}
	if o.VNI < 1 || o.VNI >= 1<<24 {
		refuse("VNI %d is not a VXLAN network identifier: it has 24 bits (RFC 7348)", o.VNI)
	}
	if o.Port < 1 || o.Port > 65535 {
		refuse("port %d is no UDP port", o.Port)
	}
	for name := range o.AgentOf {
		if !o.hasNode(name) {
			refuse("AgentOf names %q, but the nodes are %s to %s", name, nodeName(0), nodeName(o.Nodes-1))
		}
	}
	for _, name := range o.NoIPv6 {
		if !o.hasNode(name) || !o.IPv6 {
			refuse("NoIPv6 names %q: it must be a node, and IPv6 be on", name)
		}
	}
	for _, name := range o.Idle {
		if !o.hasNode(name) {
			refuse("Idle names %q, but the nodes are %s to %s", name, nodeName(0), nodeName(o.Nodes-1))
		}
	}
	return errors.Join(errs...)
}

func (o Options) hasNode(name string) bool {
	for i := range o.Nodes {
		if nodeName(i) == name {
			return true
		}
	}
	return false
}

// addr returns the address of the node with index i, counted from 0.
func (o Options) addr(i int) netip.Addr { return underlay.Plus(o.FirstNode, i) }

// nodeName returns the name of the node with index i, counted from 0.
func nodeName(i int) string { return fmt.Sprintf("node%02d", i+1) }
