package kernel

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// dual is the plan of a dual-stack node with one peer.
func dual() plan.State {
	s := state(1)
	network := netip.MustParsePrefix("fc00:5::/48")
	peer, hw := netip.MustParsePrefix("fc00:5:0:1::/64"), lease.MAC{2, 0, 0, 0, 6, 2}
	const device = "flannel-v6.1"
	s.Networks = append(s.Networks, network)
	s.Devices = append(s.Devices, plan.Device{
		Name: device, VNI: 1, Port: 8472, Parent: "eth0",
		Local: netip.MustParseAddr("fd00::1"), MAC: lease.MAC{2, 0, 0, 0, 6, 1}, MTU: 1430,
	})
	s.Addrs = append(s.Addrs, plan.Addr{Link: device, Prefix: netip.MustParsePrefix("fc00:5::/128")})
	s.FDB = append(s.FDB, plan.FDB{Link: device, MAC: hw, Dst: netip.MustParseAddr("fd00::2")})
	s.Neighbours = append(s.Neighbours, plan.Neighbour{Link: device, IP: peer.Addr(), MAC: hw})
	s.Routes = append(s.Routes, plan.Route{Dst: peer, Via: peer.Addr(), Link: device, Onlink: true})
	s.Rules = append(s.Rules, plan.Rules{
		Network: network, Subnet: netip.MustParsePrefix("fc00:5::/64"),
		Masquerade: true, Forward: true,
	})
	s.Sysctls = append(s.Sysctls, plan.Sysctl{Path: "net/ipv6/conf/all/forwarding", Value: "1"},
		plan.Sysctl{Path: "net/ipv6/conf/" + device + "/accept_ra", Value: "0"})
	return s
}

func TestDualStack(t *testing.T) {
	h := newHost(t)
	must(t, h.nl.AddrAdd(h.link("eth0"), &netlink.Addr{IPNet: cidr("fd00::1/64"), Flags: unix.IFA_F_NODAD}))
	s := dual()
	h.apply(s)
	if changes := h.apply(s); len(changes) != 0 {
		t.Errorf("the second pass changed %v", changes)
	}
	routes, err := dump(func() ([]netlink.Route, error) {
		return h.nl.RouteListFiltered(
			netlink.FAMILY_V6,
			&netlink.Route{LinkIndex: h.link("flannel-v6.1").Attrs().Index},
			netlink.RT_FILTER_OIF,
		)
	})
	must(t, err)
	found := false
	for _, r := range routes {
		found = found || (r.Dst != nil && r.Dst.String() == "fc00:5:0:1::/64" && r.Gw.String() == "fc00:5:0:1::" &&
			r.Flags&unix.RTNH_F_ONLINK != 0)
	}
	if !found {
		t.Errorf("no route to the peer's IPv6 subnet in %v", routes)
	}
	must(t, ns.Do(h.handle, func() error {
		tables, err := h.nftables().ListTables()
		if n := strings.Count(tableNames(tables), tableName); n != 2 {
			t.Errorf("%d tables of the overlay", n)
		}
		return err
	}))
	// Without the peer all of it goes, in both families.
	s.FDB, s.Neighbours, s.Routes = nil, nil, nil
	if changes := h.apply(s); len(changes) != 6 {
		t.Errorf("removed %v", changes)
	}
}
