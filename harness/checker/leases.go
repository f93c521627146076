package checker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/harness/flannelkeys"
)

func oneLease(s Snapshot) (wrong []string) {
	var order []netip.Addr
	byIP := map[netip.Addr][]string{}
	for _, l := range s.Leases {
		if !l.PublicIP.IsValid() {
			continue
		}
		if byIP[l.PublicIP] == nil {
			order = append(order, l.PublicIP)
		}
		byIP[l.PublicIP] = append(byIP[l.PublicIP], keyOf(l))
	}
	for _, ip := range order {
		if keys := byIP[ip]; len(keys) > 1 {
			wrong = append(wrong, fmt.Sprintf("public address %s has %d leases: %s", ip, len(keys),
				strings.Join(keys, ", ")))
		}
	}
	for _, n := range s.Nodes {
		if _, ok := s.lease(n); ok || !n.Agent.Running || s.exhausted() {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("the agent on %s runs and no lease names %s, though subnets are free",
			n.Name, addrs(n.Addrs)))
	}
	return wrong
}

// exhausted reports whether no subnet is free. The first of the network is never handed out.
func (s Snapshot) exhausted() bool {
	room := 1<<max(0, s.SubnetLen-s.Network.Bits()) - 1
	return len(s.Leases) >= room
}

func noOverlap(s Snapshot) (wrong []string) {
	for i, a := range s.Leases {
		for _, b := range s.Leases[i+1:] {
			if a.Subnet.Overlaps(b.Subnet) {
				wrong = append(wrong, fmt.Sprintf("%s of %s and %s of %s overlap", keyOf(a), a.PublicIP,
					keyOf(b), b.PublicIP))
			}
		}
	}
	return wrong
}

// peers returns what explains entries in a node's kernel: the leases of others that can be right and, for an
// agent that follows them, the records of owners whose lease is gone while their hold lasts and the subnet
// is nobody else's.
func (s Snapshot) peers(n Node, own flannelkeys.Lease) []flannelkeys.Lease {
	var peers []flannelkeys.Lease
	leased := map[netip.Addr]bool{}
	add := func(l flannelkeys.Lease) {
		if !s.credible(l) || n.has(l.PublicIP) || clash(l, own) {
			return
		}
		if slices.ContainsFunc(peers, func(p flannelkeys.Lease) bool { return clash(l, p) }) {
			return
		}
		peers = append(peers, l)
	}
	for _, l := range s.Leases {
		leased[l.PublicIP] = true
		add(l)
	}
	if !n.Agent.Records {
		return peers
	}
	for _, o := range s.Owners {
		if !leased[o.PublicIP] && s.At.Before(o.Ends.Add(s.Hold)) {
			add(o.Lease)
		}
	}
	return peers
}

// clash reports whether two leases cannot both be right: they share addresses or a VTEP.
func clash(a, b flannelkeys.Lease) bool {
	return a.Subnet.Overlaps(b.Subnet) || (a.VtepMAC != "" && a.VtepMAC == b.VtepMAC)
}

// credible reports whether a lease may have a place in a kernel at all: one of this network, of a VTEP that
// frames can be sent to.
func (s Snapshot) credible(l flannelkeys.Lease) bool {
	inside := l.Subnet.Bits() > s.Network.Bits() && s.Network.Contains(l.Subnet.Addr())
	reached := l.Backend == HostGW || (l.VNI == s.VNI && unicast(l.VtepMAC))
	return l.Backend == s.Backend && reached && inside && l.PublicIP.IsValid() &&
		!l.PublicIP.IsMulticast() && !l.PublicIP.IsLoopback()
}

// unicast reports whether a MAC is one of a device: not zero and without the group bit (IEEE 802).
func unicast(mac string) bool {
	return len(mac) == 17 && strings.Trim(mac, "0:") != "" && strings.ContainsRune("02468ace", rune(mac[1]))
}

func addrs(all []netip.Addr) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	if len(texts) == 0 {
		return "an address of its uplink, which has none"
	}
	return strings.Join(texts, " or ")
}
