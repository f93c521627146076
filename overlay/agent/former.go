package agent

import (
	"net/netip"
	"slices"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
	"github.com/nemesh/nemesh/overlay/plan"
)

// rememberNetworks notes what the node may have left in the kernel with another network configuration:
// networks, routes to peers over the uplink, and devices. Only what is noted here is removed, now or at a
// later start, because the address of a route on the uplink does not prove whose it is.
func (a *Agent) rememberNetworks() {
	s, c := &a.state, a.config
	a.former = slices.Clone(s.Networks)
	for _, n := range []netip.Prefix{c.IPv4.Network, c.IPv6.Network} {
		a.former = slices.DeleteFunc(a.former, func(f netip.Prefix) bool { return f == n })
		if n.IsValid() && !slices.Contains(s.Networks, n) {
			s.Networks = append(s.Networks, n)
		}
	}
	routes := map[plan.Gateway]bool{}
	for _, g := range s.FormerRoutes {
		routes[g] = true
	}
	known := func(attrs lease.Attrs, key string) {
		n, err := lease.ParseKey(key)
		if err != nil || attrs.Node() == (lease.Attrs{PublicIP: s.PublicIP, PublicIPv6: s.PublicIPv6}).Node() {
			return
		}
		for _, g := range []plan.Gateway{{Dst: n.V4, Via: attrs.PublicIP}, {Dst: n.V6, Via: attrs.PublicIPv6}} {
			if g.Dst.IsValid() && g.Via.IsValid() {
				routes[g] = true
			}
		}
	}
	for key, attrs := range s.Leases {
		known(attrs, key)
	}
	for key, owner := range s.Owners {
		known(owner.Attrs, key)
	}
	s.FormerRoutes = nil
	for g := range routes {
		inFormer := slices.ContainsFunc(a.former, func(f netip.Prefix) bool {
			return netconf.Range{Network: f}.Covers(g.Dst)
		})
		if inFormer && !c.IPv4.Covers(g.Dst) && !c.IPv6.Covers(g.Dst) {
			s.FormerRoutes = append(s.FormerRoutes, g)
		}
	}
	slices.SortFunc(s.FormerRoutes, plan.Gateway.Compare)
	a.rememberDevices()
}

// rememberDevices notes the devices of the former configuration that this one does not have.
func (a *Agent) rememberDevices() {
	s := &a.state
	if before, err := netconf.Parse(s.Config); err == nil && before.Backend.Type == "vxlan" {
		for v6, mac := range map[bool]lease.MAC{false: s.VtepMAC, true: s.VtepMAC6} {
			d := plan.FormerDevice{Name: plan.DeviceName(before.Backend.VNI, v6), VNI: before.Backend.VNI, MAC: mac}
			if mac.Unicast() && !slices.Contains(s.FormerDevices, d) {
				s.FormerDevices = append(s.FormerDevices, d)
			}
		}
	}
	b := a.config.Backend
	s.FormerDevices = slices.DeleteFunc(s.FormerDevices, func(d plan.FormerDevice) bool {
		family := d.Name == plan.DeviceName(b.VNI, false) && a.config.EnableIPv4 ||
			d.Name == plan.DeviceName(b.VNI, true) && a.config.EnableIPv6
		return b.Type == "vxlan" && family
	})
	slices.SortFunc(s.FormerDevices, plan.FormerDevice.Compare)
}
