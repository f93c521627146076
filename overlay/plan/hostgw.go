package plan

import "github.com/nemesh/nemesh/overlay/lease"

// hostGW plans plain routes: to each peer's subnet through the peer's own address. All nodes must be on one
// link. A peer that is not gets no route of that family, and is rejected with a reason.
func hostGW(in Input) (State, []Rejected) {
	s := common(in)
	peers, rejected := trusted(in)
	for _, p := range peers {
		for _, f := range gatewaysOf(in, p) {
			if in.Direct != nil && !in.Direct(f.Via) {
				rejected = append(rejected, Rejected{
					Subnet: p.Subnet,
					Reason: "its node " + f.Via.String() + " is not on this node's link",
				})
				continue
			}
			s.Routes = append(s.Routes, Route{Dst: f.Dst, Via: f.Via, Link: in.Uplink.Name})
		}
	}
	return s, rejected
}

// gatewaysOf lists those of the families that the network and the peer have.
func gatewaysOf(in Input, p lease.Lease) (all []Gateway) {
	if in.Config.EnableIPv4 && p.Subnet.V4.IsValid() && p.Attrs.PublicIP.IsValid() {
		all = append(all, Gateway{p.Subnet.V4, p.Attrs.PublicIP})
	}
	if in.Config.EnableIPv6 && p.Subnet.V6.IsValid() && p.Attrs.PublicIPv6.IsValid() {
		all = append(all, Gateway{p.Subnet.V6, p.Attrs.PublicIPv6})
	}
	return all
}
