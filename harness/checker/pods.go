package checker

import (
	"fmt"
	"net/netip"
	"slices"
)

func podAddressOnce(s Snapshot) (wrong []string) {
	type holder struct{ node, pod string }
	first := map[netip.Addr]holder{}
	for _, n := range s.Nodes {
		for _, p := range n.Pods {
			for _, a := range p.Addrs {
				if h, twice := first[a]; twice {
					wrong = append(wrong, fmt.Sprintf("pod %s on %s and pod %s on %s both have the address %s", h.pod,
						h.node, p.Name, n.Name, a))
					continue
				}
				first[a] = holder{n.Name, p.Name}
			}
		}
	}
	return wrong
}

func podInLease(s Snapshot) (wrong []string) {
	nodes, leases := s.working()
	for i, n := range nodes {
		for _, p := range n.Pods {
			for _, a := range p.Addrs {
				if !leases[i].Subnet.Contains(a) && !leases[i].Subnet6.Contains(a) {
					wrong = append(wrong, fmt.Sprintf("pod %s on %s has the address %s, and the node's lease is %s",
						p.Name, n.Name, a, keyOf(leases[i])))
				}
			}
		}
	}
	return wrong
}

func noVeth(s Snapshot) (wrong []string) {
	for _, n := range s.Nodes {
		for _, v := range n.Veths {
			if !slices.ContainsFunc(n.Pods, func(p Pod) bool { return p.Peer == v.Index }) {
				wrong = append(wrong, fmt.Sprintf("veth %s on %s leads to no pod", v.Name, n.Name))
			}
		}
	}
	return wrong
}

func noReservation(s Snapshot) (wrong []string) {
	for _, n := range s.Nodes {
		for _, r := range n.Reservations {
			i := slices.IndexFunc(n.Pods, func(p Pod) bool { return p.Name == r.Container })
			switch {
			case i < 0:
				wrong = append(
					wrong,
					fmt.Sprintf("%s has %s reserved in network %s for container %s, which is not there",
						n.Name, r.Addr, r.Network, r.Container),
				)
			case !slices.Contains(n.Pods[i].Addrs, r.Addr):
				wrong = append(wrong, fmt.Sprintf("%s has %s reserved in network %s for container %s, which has %v",
					n.Name, r.Addr, r.Network, r.Container, n.Pods[i].Addrs))
			}
		}
	}
	return wrong
}
