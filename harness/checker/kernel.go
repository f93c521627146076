package checker

import (
	"fmt"
	"net/netip"
	"slices"
)

// Entries returns the entries that a peer's lease explains on a device or, where the backend has none, on
// the uplink, as lines.
func Entries(device, uplink string, peer Lease) []string {
	at := peer.Subnet.Addr()
	if peer.Backend == HostGW {
		return []string{Route{Dst: peer.Subnet, Via: peer.PublicIP, Link: uplink}.String()}
	}
	return []string{
		Route{Dst: peer.Subnet, Via: at, Link: device, Onlink: true}.String(),
		Neighbour{IP: at, MAC: peer.VtepMAC, Link: device}.String(),
		FDB{MAC: peer.VtepMAC, Dst: peer.PublicIP, Link: device}.String(),
	}
}

// Overlay returns the entries of a node's kernel that are the overlay's, as lines: routes over its device,
// routes for parts of its network by way of another machine, and the device's permanent entries.
func (n Node) Overlay(network netip.Prefix) []string {
	var lines []string
	for _, r := range n.Routes {
		within := r.Dst.Bits() >= network.Bits() && network.Contains(r.Dst.Addr())
		if (n.Device != "" && r.Link == n.Device) || (within && r.Link == n.Uplink && r.Via.IsValid()) {
			lines = append(lines, r.String())
		}
	}
	for _, e := range n.Neighbours {
		lines = append(lines, e.String())
	}
	for _, e := range n.FDB {
		lines = append(lines, e.String())
	}
	return lines
}

func explained(s Snapshot) (wrong []string) {
	nodes, leases := s.working()
	for i, n := range nodes {
		have, whose := n.Overlay(s.Network), map[string]Lease{}
		for _, p := range s.peers(n, leases[i]) {
			for _, e := range Entries(n.Device, n.Uplink, p) {
				whose[e] = p
				if !slices.Contains(have, e) {
					wrong = append(wrong, fmt.Sprintf("%s lacks %s, which subnets/%s of %s explains", n.Name, e,
						key(p.Subnet), p.PublicIP))
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
			wrong = append(wrong, fmt.Sprintf("%s has %s as %s, and subnets/%s publishes VtepMAC %s", n.Name, mac,
				n.Device, key(l.Subnet), l.VtepMAC))
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
func believes(peer, n Node, l Lease) (wrong []string) {
	for _, e := range peer.Neighbours {
		if e.IP == l.Subnet.Addr() && e.MAC != n.MAC {
			wrong = append(wrong, fmt.Sprintf("%s has %s, and %s of %s has MAC %s", peer.Name, e, n.Device, n.Name,
				n.MAC))
		}
	}
	for _, e := range peer.FDB {
		if e.MAC == n.MAC && e.Dst != l.PublicIP {
			wrong = append(wrong, fmt.Sprintf("%s has %s, and that MAC is of %s at %s", peer.Name, e, n.Name,
				l.PublicIP))
		}
		if e.Dst == l.PublicIP && e.MAC != n.MAC {
			wrong = append(wrong, fmt.Sprintf("%s has %s, and %s of %s has MAC %s", peer.Name, e, n.Device, n.Name,
				n.MAC))
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
			wrong = append(
				wrong,
				fmt.Sprintf("%s has no subnet file that names a subnet, and its lease is subnets/%s",
					n.Name, key(l.Subnet)),
			)
		case n.Gateway.Masked() != l.Subnet:
			wrong = append(wrong, fmt.Sprintf("the subnet file of %s says FLANNEL_SUBNET=%s, and its lease is "+
				"subnets/%s", n.Name, n.Gateway, key(l.Subnet)))
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
		var best Route // what the kernel takes for the subnet as a whole: the longest prefix, the lowest metric
		for _, r := range n.Routes {
			inside := r.Dst.Bits() > own.Bits() && own.Contains(r.Dst.Addr())
			if inside && r.Link == n.Device {
				wrong = append(wrong, fmt.Sprintf("%s sends a part of its own subnet %s into the tunnel: %s", n.Name,
					own, r))
			}
			if r.Dst.Bits() > own.Bits() || !r.Dst.Contains(own.Addr()) {
				continue
			}
			longer := !best.Dst.IsValid() || r.Dst.Bits() > best.Dst.Bits()
			if longer || (r.Dst == best.Dst && r.Priority < best.Priority) {
				best = r
			}
		}
		if best.Dst.IsValid() && best.Link == n.Device {
			wrong = append(wrong, fmt.Sprintf("%s sends its own subnet %s into the tunnel: %s", n.Name, own, best))
		}
	}
	return wrong
}

func noRuleTwice(s Snapshot) (wrong []string) {
	for _, n := range s.Nodes {
		type place struct{ family, table, chain, text string }
		first := map[place]uint64{}
		for _, r := range n.Rules {
			at := place{r.Family, r.Table, r.Chain, r.Text}
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
