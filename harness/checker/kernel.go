package checker

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/observe"
)

// Entries returns the entries that a peer's lease explains on a device or, where the backend has none, on
// the uplink, as lines.
func Entries(device, uplink string, peer flannelkeys.Lease) []string {
	at := peer.Subnet.Addr()
	if peer.Backend == HostGW {
		return []string{routeLine(observe.Route{Dst: peer.Subnet, Via: peer.PublicIP, Device: uplink})}
	}
	return []string{
		routeLine(observe.Route{Dst: peer.Subnet, Via: at, Device: device, OnLink: true}),
		neighbourLine(observe.Neighbour{IP: at, MAC: peer.VtepMAC, Device: device}),
		fdbLine(observe.Neighbour{MAC: peer.VtepMAC, IP: peer.PublicIP, Device: device}),
	}
}

// routeLine leaves out the scope, which follows from the gateway.
func routeLine(r observe.Route) string {
	r.ScopeLink = false
	return "route " + r.String()
}

func neighbourLine(n observe.Neighbour) string {
	return fmt.Sprintf("neighbour %s lladdr %s dev %s", n.IP, n.MAC, n.Device)
}

func fdbLine(n observe.Neighbour) string {
	return fmt.Sprintf("fdb %s dst %s dev %s", n.MAC, n.IP, n.Device)
}

// Overlay returns the entries of a node's kernel that are the overlay's, as lines: routes over its device,
// routes for parts of its network by way of another machine, and the device's permanent entries.
func (n Node) Overlay(network netip.Prefix) []string {
	var lines []string
	for _, r := range n.Routes {
		within := r.Dst.Bits() >= network.Bits() && network.Contains(r.Dst.Addr())
		if (n.Device != "" && r.Device == n.Device) || (within && r.Device == n.Uplink && r.Via.IsValid()) {
			lines = append(lines, routeLine(r))
		}
	}
	for _, e := range n.Neighbours {
		lines = append(lines, neighbourLine(e))
	}
	for _, e := range n.FDB {
		lines = append(lines, fdbLine(e))
	}
	return lines
}

func explained(s Snapshot) (wrong []string) {
	nodes, leases := s.working()
	for i, n := range nodes {
		have, whose := n.Overlay(s.Network), map[string]flannelkeys.Lease{}
		for _, p := range s.peers(n, leases[i]) {
			for _, e := range Entries(n.Device, n.Uplink, p) {
				whose[e] = p
				if !slices.Contains(have, e) {
					wrong = append(wrong, fmt.Sprintf("%s lacks %s, which %s of %s explains", n.Name, e,
						keyOf(p), p.PublicIP))
				}
			}
		}
		for _, e := range have {
			if _, ok := whose[e]; !ok {
				wrong = append(wrong, fmt.Sprintf("%s has %s, which no lease or owner's record explains", n.Name, e))
			}
		}
	}
	return wrong
}

func vtepMAC(s Snapshot) (wrong []string) {
	nodes, leases := s.working()
	for i, n := range nodes {
		l := leases[i]
		if n.MAC != l.VtepMAC {
			mac := n.MAC
			if mac == "" {
				mac = "no device"
			}
			wrong = append(wrong, fmt.Sprintf("%s has %s as %s, and %s publishes VtepMAC %s", n.Name, mac,
				n.Device, keyOf(l), l.VtepMAC))
		}
		for _, peer := range nodes {
			if peer.Name != n.Name {
				wrong = append(wrong, believes(peer, n, l)...)
			}
		}
	}
	return wrong
}

// believes compares what a peer's kernel holds of a node with the node's device. What is missing altogether
// is another invariant's matter.
func believes(peer, n Node, l flannelkeys.Lease) (wrong []string) {
	for _, e := range peer.Neighbours {
		if e.IP == l.Subnet.Addr() && e.MAC != n.MAC {
			wrong = append(wrong, fmt.Sprintf("%s has %s, and %s of %s has MAC %s", peer.Name, neighbourLine(e),
				n.Device, n.Name, n.MAC))
		}
	}
	for _, e := range peer.FDB {
		if e.MAC == n.MAC && e.IP != l.PublicIP {
			wrong = append(wrong, fmt.Sprintf("%s has %s, and that MAC is of %s at %s", peer.Name, fdbLine(e),
				n.Name, l.PublicIP))
		}
		if e.IP == l.PublicIP && e.MAC != n.MAC {
			wrong = append(wrong, fmt.Sprintf("%s has %s, and %s of %s has MAC %s", peer.Name, fdbLine(e), n.Device,
				n.Name, n.MAC))
		}
	}
	return wrong
}

func subnetFile(s Snapshot) (wrong []string) {
	nodes, leases := s.working()
	for i, n := range nodes {
		l := leases[i]
		switch {
		case !n.Gateway.IsValid():
			wrong = append(wrong, fmt.Sprintf("%s has no subnet file that names a subnet, and its lease is %s",
				n.Name, keyOf(l)))
		case n.Gateway.Masked() != l.Subnet:
			wrong = append(wrong, fmt.Sprintf("the subnet file of %s says FLANNEL_SUBNET=%s, and its lease is %s",
				n.Name, n.Gateway, keyOf(l)))
		}
	}
	return wrong
}

func bridge(s Snapshot) (wrong []string) {
	nodes, _ := s.working()
	for _, n := range nodes {
		if !n.HasBridge || !n.Gateway.IsValid() {
			continue // nobody has made a pod yet
		}
		var own []netip.Prefix // an administrator may give the bridge addresses of other networks
		for _, a := range n.Bridge {
			if s.Network.Contains(a.Addr()) {
				own = append(own, a)
			}
		}
		if !slices.Equal(own, []netip.Prefix{n.Gateway}) {
			wrong = append(wrong, fmt.Sprintf("cni0 of %s has %v, and its subnet file says FLANNEL_SUBNET=%s", n.Name,
				own, n.Gateway))
		}
	}
	return wrong
}

func ownSubnet(s Snapshot) (wrong []string) {
	nodes, leases := s.working()
	for i, n := range nodes {
		own := leases[i].Subnet
		// What the kernel takes for the subnet as a whole: the longest prefix, the lowest metric.
		var best observe.Route
		for _, r := range n.Routes {
			inside := r.Dst.Bits() > own.Bits() && own.Contains(r.Dst.Addr())
			if inside && r.Device == n.Device {
				wrong = append(wrong, fmt.Sprintf("%s sends a part of its own subnet %s into the tunnel: %s", n.Name,
					own, routeLine(r)))
			}
			if r.Dst.Bits() > own.Bits() || !r.Dst.Contains(own.Addr()) {
				continue
			}
			longer := !best.Dst.IsValid() || r.Dst.Bits() > best.Dst.Bits()
			if longer || (r.Dst == best.Dst && r.Metric < best.Metric) {
				best = r
			}
		}
		if best.Dst.IsValid() && best.Device == n.Device {
			wrong = append(wrong, fmt.Sprintf("%s sends its own subnet %s into the tunnel: %s", n.Name, own,
				routeLine(best)))
		}
	}
	return wrong
}

func noRuleTwice(s Snapshot) (wrong []string) {
	for _, n := range s.Nodes {
		type place struct{ family, table, chain, does string }
		first := map[place]uint64{}
		for _, r := range n.Rules {
			at := place{r.Family, r.Table, r.Chain, r.Exact}
			if handle, twice := first[at]; twice {
				wrong = append(wrong, fmt.Sprintf("chain %s of nftables table %s %s on %s has the same rule twice, as "+
					"handles %d and %d: %s", r.Chain, r.Family, r.Table, n.Name, handle, r.Handle, r.Text))
				continue
			}
			first[at] = r.Handle
		}
	}
	return wrong
}
