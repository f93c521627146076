//go:build defects

package plan

import "net/netip"

// OnDemand rewrites a plan to what flannel held before v0.9 (flannel#636): one route for the whole network
// straight to the device and no neighbours, so that the kernel asks user space for each pod address.
func OnDemand(s State) State {
	s.Neighbours = nil
	s.Routes = nil
	for i, d := range s.Devices {
		s.Routes = append(s.Routes, Route{Dst: s.Networks[i], Link: d.Name})
		s.Sysctls = append(s.Sysctls, Sysctl{Path: "net/ipv4/neigh/" + d.Name + "/app_solicit", Value: "3"})
	}
	return s
}

// Resolve finds the VTEP behind which an address lives, from the leases that a full plan was made of.
func Resolve(full State, ip netip.Addr) (Neighbour, bool) {
	for _, r := range full.Routes {
		if r.Dst.Contains(ip) {
			for _, n := range full.Neighbours {
				if n.IP == r.Via {
					return Neighbour{Link: n.Link, IP: ip, MAC: n.MAC}, true
				}
			}
		}
	}
	return Neighbour{}, false
}
