package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
)

// Input is everything that a plan depends on.
type Input struct {
	Config netconf.Config
	Own    lease.Lease
	// Peers are the other nodes, first those for which most speaks: of two that exclude each other it stays.
	Peers  []lease.Lease
	Uplink Uplink
	// VtepMAC and VtepMAC6 are those of the node's VXLAN devices.
	VtepMAC, VtepMAC6 lease.MAC
	// Masquerade, RandomFully and Forward say which rules are wanted.
	Masquerade, RandomFully, Forward bool
	// Blackhole drops what is sent to the own subnet while no bridge is there to take it.
	Blackhole bool
	// Former are the networks that this node had a subnet of before.
	Former []netip.Prefix
	// FormerRoutes and FormerDevices are what it may have left there.
	FormerRoutes  []Gateway
	FormerDevices []FormerDevice
	// Direct tells, for DirectRouting, whether a peer is reached without a gateway.
	Direct func(netip.Addr) bool
}

// Backend is a way for nodes to reach each other.
type Backend struct {
	// Plan computes what the kernel should hold. Peers that cannot be trusted are left out, with the reason.
	Plan func(Input) (State, []Rejected)
	// MTU is what pods may send, given the uplink's.
	MTU func(netconf.Config, Uplink) int
}

var backends = map[string]Backend{
	"vxlan":   {Plan: vxlan, MTU: vxlanMTU},
	"host-gw": {Plan: hostGW, MTU: func(c netconf.Config, u Uplink) int { return plainMTU(c.Backend, u) }},
}

// BackendOf returns the backend of that name.
func BackendOf(name string) (Backend, error) {
	if b, ok := backends[name]; ok {
		return b, nil
	}
	return Backend{}, fmt.Errorf("Backend.Type %q is not supported; there are: %s", name,
		strings.Join(slices.Sorted(maps.Keys(backends)), ", "))
}

// kernelPort is the kernel's default VXLAN port (drivers/net/vxlan, older than the 4789 of RFC 7348).
const kernelPort = 8472

// overhead is what VXLAN adds to a packet: outer IPv4 (20), UDP (8), VXLAN (8) and inner Ethernet (14).
// An outer IPv6 header has 40, and the kernel gives a device with an IPv6 VTEP no more than what is left
// (drivers/net/vxlan/vxlan_core.c, VXLAN6_HEADROOM).
const (
	overhead  = 50
	overhead6 = 70
)

func plainMTU(b netconf.Backend, u Uplink) int {
	if b.MTU != 0 {
		return b.MTU
	}
	return u.MTU
}

// vxlanMTU is what fits through the tunnels of all families that the network has: a pod has one MTU.
func vxlanMTU(c netconf.Config, u Uplink) int {
	return plainMTU(c.Backend, u) - overheadOf(c.EnableIPv6)
}

func overheadOf(v6 bool) int {
	if v6 {
		return overhead6
	}
	return overhead
}

// common is the part of the plan that all backends share: forwarding, and the rules.
func common(in Input) State {
	s := State{
		Uplink: in.Uplink.Name, Former: in.Former,
		FormerRoutes: in.FormerRoutes, FormerDevices: in.FormerDevices,
	}
	add := func(rng netconf.Range, own netip.Prefix, sysctl string) {
		s.Networks = append(s.Networks, rng.Network)
		s.Sysctls = append(s.Sysctls, Sysctl{Path: sysctl, Value: "1"})
		s.Rules = append(s.Rules, Rules{
			Network: rng.Network, Subnet: own,
			Masquerade: in.Masquerade, RandomFully: in.RandomFully, Forward: in.Forward,
		})
		if in.Blackhole {
			s.Blackholes = append(s.Blackholes, own)
		}
	}
	if in.Config.EnableIPv4 {
		add(in.Config.IPv4, in.Own.Subnet.V4, "net/ipv4/ip_forward")
	}
	if in.Config.EnableIPv6 {
		add(in.Config.IPv6, in.Own.Subnet.V6, "net/ipv6/conf/all/forwarding")
	}
	return s
}

// trusted returns the peers whose leases may reach the kernel. Where two exclude each other, one with a
// subnet that this network hands out comes before one of another length: a key that was written by hand must
// not remove nodes that work.
func trusted(in Input) (peers []lease.Lease, rejected []Rejected) {
	ordered := slices.Clone(in.Peers)
	slices.SortStableFunc(ordered, func(a, b lease.Lease) int {
		return cmp.Compare(odd(in.Config, a.Subnet), odd(in.Config, b.Subnet))
	})
	for _, p := range ordered {
		if reason := distrust(in, p, peers); reason != "" {
			rejected = append(rejected, Rejected{Subnet: p.Subnet, Reason: reason})
			continue
		}
		peers = append(peers, p)
	}
	return peers, rejected
}

// odd is 1 for a subnet that this network does not hand out, and 0 for one that it does.
func odd(c netconf.Config, s lease.Subnet) int {
	if s.V4.IsValid() && !c.IPv4.Contains(s.V4) && c.EnableIPv4 ||
		s.V6.IsValid() && !c.IPv6.Contains(s.V6) && c.EnableIPv6 {
		return 1
	}
	return 0
}

// Takes reports whether a lease takes its subnet from the former owner: this network hands out such subnets,
// and the lease may reach the kernel.
func Takes(in Input, l lease.Lease) bool {
	if odd(in.Config, l.Subnet) != 0 || distrust(in, l, nil) != "" {
		return false
	}
	if in.Config.Backend.Type != "vxlan" {
		return true
	}
	for _, f := range families(in) {
		if subnet, public, data := f.of(l); subnet.IsValid() && distrustVTEP(in, f, public, data) != "" {
			return false
		}
	}
	return true
}

// distrust returns why a lease must not reach the kernel; "" if it may. before are the peers accepted so
// far: of two that overlap the first stays.
func distrust(in Input, p lease.Lease, before []lease.Lease) string {
	own := in.Own
	switch {
	case p.Attrs.BackendType != in.Config.Backend.Type:
		return fmt.Sprintf("its backend is %q, this network's is %q", p.Attrs.BackendType, in.Config.Backend.Type)
	case in.Config.EnableIPv4 && p.Subnet.V4.IsValid() && !inside(in.Config.IPv4.Network, p.Subnet.V4):
		return "outside the network " + in.Config.IPv4.Network.String()
	case in.Config.EnableIPv6 && p.Subnet.V6.IsValid() && !inside(in.Config.IPv6.Network, p.Subnet.V6):
		return "outside the network " + in.Config.IPv6.Network.String()
	case p.Subnet.Overlaps(own.Subnet):
		return "overlaps this node's own subnet " + own.Subnet.String()
	case !p.Attrs.Node().IsValid():
		return "has no public address"
	}
	for _, pair := range [][2]netip.Addr{
		{p.Attrs.PublicIP, own.Attrs.PublicIP}, {p.Attrs.PublicIPv6, own.Attrs.PublicIPv6},
	} {
		switch a := pair[0]; {
		case a.IsValid() && a == pair[1]:
			return "claims this node's own public address " + a.String()
		case a.IsMulticast() || a.IsLoopback() || a.IsValid() && a.IsUnspecified():
			return fmt.Sprintf("public address %s is no node's", a)
		}
	}
	for _, b := range before {
		if p.Subnet.Overlaps(b.Subnet) {
			return "overlaps " + b.Subnet.String() + " of " + b.Attrs.Node().String()
		}
	}
	return ""
}

func inside(network, p netip.Prefix) bool {
	return p.Bits() > network.Bits() && network.Contains(p.Addr())
}
