package kernel

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// gatewayPlan is a plan of host-gw with one peer, and a former network with two.
func gatewayPlan() plan.State {
	return plan.State{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.6.0.0/16")},
		Former:   []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")},
		Uplink:   "eth0",
		Routes: []plan.Route{{
			Dst: netip.MustParsePrefix("10.6.2.0/24"), Via: netip.MustParseAddr("192.168.0.2"),
			Link: "eth0",
		}},
		FormerRoutes: []plan.Gateway{
			{Dst: netip.MustParsePrefix("10.5.2.0/24"), Via: netip.MustParseAddr("192.168.0.2")},
			{Dst: netip.MustParsePrefix("10.5.3.0/24"), Via: netip.MustParseAddr("192.168.0.3")},
			{Dst: netip.MustParsePrefix("10.5.4.0/24"), Via: netip.MustParseAddr("192.168.0.4")},
			{Dst: netip.MustParsePrefix("10.5.5.0/24"), Via: netip.MustParseAddr("192.168.0.5")},
		},
	}
}

func TestRoutesOfAFormerNetworkOnTheUplinkAreCleared(t *testing.T) {
	h := newHost(t)
	add := func(dst, via string, change func(*netlink.Route)) string {
		r := &netlink.Route{Dst: cidr(dst), Gw: net.ParseIP(via), Protocol: 3}
		if change != nil {
			change(r)
		}
		must(t, h.nl.RouteAdd(r))
		return "route " + dst + " via " + via + " dev eth0\n"
	}
	gone := add("10.5.2.0/24", "192.168.0.2", nil)
	twice := add("10.5.3.0/24", "192.168.0.3", nil) // and once more with a metric, by somebody else
	foreign := []string{
		add("10.5.9.0/24", "192.168.0.2", nil),                                        // no lease explains it
		add("10.5.2.128/25", "192.168.0.2", nil),                                      // nor a part of one
		add("10.5.4.0/24", "192.168.0.44", nil),                                       // by another gateway
		add("10.5.5.0/24", "192.168.0.5", func(r *netlink.Route) { r.Protocol = 4 }),  // static
		add("10.5.3.0/24", "192.168.0.3", func(r *netlink.Route) { r.Priority = 77 }), // with a metric
		add("10.7.2.0/24", "192.168.0.2", nil),                                        // no network of the node's
	}
	s := gatewayPlan()
	changes := h.apply(s)
	text := h.dump()
	if strings.Contains(text, gone) {
		t.Errorf("still there: %s", gone)
	}
	for _, line := range foreign {
		if !strings.Contains(text, line) {
			t.Errorf("somebody else's is gone: %s", line)
		}
	}
	if strings.Count(text, twice) != 1 {
		t.Errorf("of two routes to one subnet, not the overlay's alone is gone:\n%s", text)
	}
	if !strings.Contains(text, "route 10.6.2.0/24 via 192.168.0.2") {
		t.Error(text)
	}
	if len(changes) != 3 {
		t.Errorf("%v", changes)
	}
	if changes := h.apply(s); len(changes) != 0 {
		t.Errorf("the second pass changed %v", changes)
	}
}

func TestDevicesOfAFormerConfigurationAreRemoved(t *testing.T) {
	h := newHost(t)
	before := state(2)
	h.apply(before)
	now := state(2)
	for i := range now.Devices {
		now.Devices[i].Name, now.Devices[i].VNI = "flannel.2", 2
	}
	now.Addrs[0].Link = "flannel.2"
	for i := range now.Routes {
		now.Routes[i].Link, now.Neighbours[i].Link, now.FDB[i].Link = "flannel.2", "flannel.2", "flannel.2"
	}
	other := plan.FormerDevice{Name: "flannel.1", VNI: 1, MAC: lease.MAC{2, 0, 0, 0, 0, 99}}
	now.FormerDevices = []plan.FormerDevice{other, {Name: "flannel.7", VNI: 7, MAC: other.MAC}}
	h.apply(now)
	if !strings.Contains(h.dump(), "link flannel.1 ") {
		t.Fatal("a device with another MAC, somebody else's, was removed")
	}
	now.FormerDevices[0].MAC = before.Devices[0].MAC
	h.apply(now)
	if text := h.dump(); strings.Contains(text, "flannel.1\n") || strings.Contains(text, "link flannel.1 ") {
		t.Error(text)
	}
	if changes := h.apply(now); len(changes) != 0 {
		t.Errorf("the next pass changed %v", changes)
	}
}
