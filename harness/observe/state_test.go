package observe

import (
	"net/netip"
	"slices"
	"testing"
)

var (
	addr = netip.MustParseAddr
	pfx  = netip.MustParsePrefix
)

// The record and what compares two moments rely on these lines to the letter.
func TestLines(t *testing.T) {
	const mac, peer = "02:00:00:00:00:01", "02:00:00:00:00:02"
	got := State{
		Links: []Link{
			{Name: "lo", Type: "device", Up: true, MTU: 65536},
			{
				Name: "flannel.1", Type: "vxlan", Up: true, MTU: 1450, MAC: mac, VNI: 1, Port: 8472,
				Local: addr("192.168.0.1"),
			},
			{Name: "any", Type: "vxlan", MTU: 1500, MAC: mac, VNI: 7, Port: 4789, Learning: true},
		},
		Addresses: []Address{
			{"lo", pfx("127.0.0.1/8")}, {"flannel.1", pfx("10.5.1.0/32")}, {"flannel.1", pfx("fe80::1/64")},
		},
		Routes: []Route{
			{
				Dst: pfx("10.5.2.0/24"), Via: addr("10.5.2.0"), Device: "flannel.1", Type: "unicast", Table: 254,
				OnLink: true,
			},
			{Dst: pfx("10.5.1.0/24"), Device: "cni0", Type: "unicast", Table: 254, ScopeLink: true},
			{
				Dst: pfx("0.0.0.0/0"), Via: addr("192.168.0.254"), Device: "eth0", Type: "unicast", Table: 254,
				Metric: 100,
			},
			{Dst: pfx("10.5.3.0/24"), Hops: []Hop{{addr("192.168.0.3"), "eth0"}}, Type: "unicast", Table: 254},
			{Dst: pfx("10.5.9.0/24"), Type: "blackhole", Table: 254},
			{Dst: pfx("127.0.0.0/8"), Device: "lo", Type: "local", Table: 255},
			{Dst: pfx("fe80::/64"), Device: "eth0", Type: "unicast", Table: 254},
		},
		Neighbours: []Neighbour{
			{"flannel.1", addr("10.5.2.0"), peer, "PERMANENT"},
			{"eth0", addr("192.168.0.9"), "", "FAILED"},
			{"eth0", addr("fe80::2"), peer, "REACHABLE"},
		},
		FDB: []Neighbour{
			{"flannel.1", addr("192.168.0.2"), peer, "PERMANENT"},
			{"any", netip.Addr{}, "", "PERMANENT|NOARP"},
			{"flannel-v6.1", addr("fd00::2"), peer, "PERMANENT"},
		},
		Rules: []Rule{
			{Family: "ip", Table: "nat", Chain: "POSTROUTING"},
			{Family: "ip", Table: "filter", Chain: "FORWARD"},
			{Family: "ip", Table: "nat", Chain: "POSTROUTING"},
		},
	}.Lines()
	for _, part := range []struct{ got, want []string }{
		{got.Links, []string{
			"lo: UP mtu 65536 device link/ether none",
			"flannel.1: UP mtu 1450 vxlan link/ether 02:00:00:00:00:01 id 1 local 192.168.0.1 dstport 8472",
			"any: DOWN mtu 1500 vxlan link/ether 02:00:00:00:00:01 id 7 local <nil> dstport 4789 learning",
		}},
		{got.Addresses, []string{"10.5.1.0/32 dev flannel.1", "127.0.0.1/8 dev lo"}},
		{got.Routes, []string{
			"10.5.1.0/24 dev cni0 scope link", "10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink",
			"10.5.3.0/24", "10.5.9.0/24", "default via 192.168.0.254 dev eth0 metric 100",
		}},
		{got.Neighbours, []string{
			"10.5.2.0 dev flannel.1 lladdr 02:00:00:00:00:02 PERMANENT",
			"192.168.0.9 dev eth0 lladdr none FAILED",
		}},
		{got.FDB, []string{
			"02:00:00:00:00:02 dev flannel-v6.1 dst fd00::2 permanent",
			"02:00:00:00:00:02 dev flannel.1 dst 192.168.0.2 permanent",
			"none dev any dst <nil> permanent|noarp",
		}},
		{got.Rules, []string{"rules in filter FORWARD: 1", "rules in nat POSTROUTING: 2"}},
	} {
		if !slices.Equal(part.got, part.want) {
			t.Errorf("got\n%q, want\n%q", part.got, part.want)
		}
	}
}

func TestLookup(t *testing.T) {
	s := State{Routes: []Route{
		{Dst: pfx("0.0.0.0/0"), Device: "eth0", Type: "unicast", Table: 254},
		{Dst: pfx("172.16.0.0/16"), Device: "a", Type: "unicast", Table: 254},
		{Dst: pfx("172.16.2.0/24"), Device: "b", Type: "unicast", Table: 254, Metric: 10},
		{Dst: pfx("172.16.2.0/24"), Device: "c", Type: "unicast", Table: 254, Metric: 5},
		{Dst: pfx("172.16.3.0/24"), Type: "throw", Table: 254},
		{Dst: pfx("172.16.3.0/24"), Device: "d", Type: "unicast", Table: 253},
		{Dst: pfx("172.16.2.1/32"), Device: "lo", Type: "local", Table: 255},
		{Dst: pfx("172.16.2.9/32"), Device: "x", Type: "unicast", Table: 100},
		{
			Dst: pfx("172.17.0.0/16"), Hops: []Hop{{addr("192.168.0.1"), "e"}, {addr("192.168.1.1"), "f"}},
			Type: "unicast", Table: 254,
		},
		{Dst: pfx("::/0"), Device: "v6", Type: "unicast", Table: 254},
	}}
	for to, want := range map[string]string{
		"8.8.8.8": "eth0", "172.16.9.1": "a", "172.16.2.2": "c", "172.16.2.1": "lo", "172.16.2.9": "c",
		"172.16.3.4": "d", "172.17.1.1": "e", "fc00::1": "v6",
	} {
		if r, ok := s.Lookup(addr(to)); !ok || r.Device != want {
			t.Errorf("%s goes to %q, want %s", to, r.Device, want)
		}
	}
	if r, ok := (State{}).Lookup(addr("8.8.8.8")); ok {
		t.Errorf("found %v in nothing", r)
	}
}
