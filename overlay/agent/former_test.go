package agent

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
	"github.com/nemesh/nemesh/overlay/plan"
)

func TestWhatAFormerNetworkLeftIsExplainedByItsLeases(t *testing.T) {
	attrs := func(ip, ip6 string) lease.Attrs {
		a := lease.Attrs{PublicIP: netip.MustParseAddr(ip), BackendType: "host-gw"}
		if ip6 != "" {
			a.PublicIPv6 = netip.MustParseAddr(ip6)
		}
		return a
	}
	gateway := func(dst, via string) plan.Gateway {
		return plan.Gateway{Dst: netip.MustParsePrefix(dst), Via: netip.MustParseAddr(via)}
	}
	s := fresh()
	s.PublicIP = netip.MustParseAddr("192.0.2.1")
	s.VtepMAC = lease.MAC{2, 0, 0, 0, 0, 1}
	s.Networks = []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16"), netip.MustParsePrefix("fc00::/48")}
	s.Config = []byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","DirectRouting":true}}`)
	s.Leases = map[string]lease.Attrs{
		"10.5.1.0-24":                  attrs("192.0.2.1", ""), // its own
		"10.5.2.0-24&fc00:0:0:2::-64":  attrs("192.0.2.2", "2001:db8::2"),
		"8.8.8.0-24":                   attrs("192.0.2.2", ""), // of no network that the node was in
		"10.5.77.0-24&2001:db8:1::-64": attrs("192.0.2.7", "2001:db8::7"),
	}
	s.Owners = map[string]lease.Owner{"10.5.3.0-24": {Attrs: attrs("192.0.2.3", "")}}
	want := []plan.Gateway{
		gateway("10.5.2.0/24", "192.0.2.2"), gateway("10.5.3.0/24", "192.0.2.3"),
		gateway("10.5.77.0/24", "192.0.2.7"), gateway("fc00:0:0:2::/64", "2001:db8::2"),
	}
	move := func(config string) {
		t.Helper()
		c, err := netconf.Parse([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{state: s, config: c}
		a.rememberNetworks()
		s = a.state
	}
	const there = `{"Network":"10.6.0.0/16","Backend":{"Type":"host-gw"}}`
	move(there)
	if !reflect.DeepEqual(s.FormerRoutes, want) {
		t.Errorf("routes %v", s.FormerRoutes)
	}
	if d := (plan.FormerDevice{Name: "flannel.1", VNI: 1, MAC: s.VtepMAC}); !reflect.DeepEqual(
		s.FormerDevices, []plan.FormerDevice{d}) {
		t.Errorf("devices %v", s.FormerDevices)
	}
	// The next start knows the new network's leases only, and what was noted before.
	s.Leases, s.Owners, s.Config = nil, nil, []byte(there)
	move(there)
	if !reflect.DeepEqual(s.FormerRoutes, want) || len(s.FormerDevices) != 1 {
		t.Errorf("after another start: routes %v, devices %v", s.FormerRoutes, s.FormerDevices)
	}
	// Back again: what is wanted now is not former any more.
	move(`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}`)
	if !reflect.DeepEqual(s.FormerRoutes, want[3:]) || len(s.FormerDevices) != 0 {
		t.Errorf("back: routes %v, devices %v", s.FormerRoutes, s.FormerDevices)
	}
}
