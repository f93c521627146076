package plan

// hostGW plans plain routes: each peer's subnet by way of the peer's own address on the shared link. Nodes
// must be on one link; a peer that is not gets no route, and is named.
func hostGW(in Input) (State, []Rejected) {
	s := common(in)
	peers, rejected := trusted(in)
	for _, p := range peers {
		if in.Direct != nil && !in.Direct(p.Attrs.PublicIP) {
			rejected = append(rejected, Rejected{Subnet: p.Subnet,
				Reason: "its node " + p.Attrs.PublicIP.String() + " is not on this node's link"})
			continue
		}
		if p.Subnet.V4.IsValid() && p.Attrs.PublicIP.IsValid() {
			s.Routes = append(s.Routes, Route{Dst: p.Subnet.V4, Via: p.Attrs.PublicIP, Link: in.Uplink.Name})
		}
		if p.Subnet.V6.IsValid() && p.Attrs.PublicIPv6.IsValid() {
			s.Routes = append(s.Routes, Route{Dst: p.Subnet.V6, Via: p.Attrs.PublicIPv6, Link: in.Uplink.Name})
		}
	}
	return s, rejected
}
