package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
)

func mac(t *testing.T, text string) lease.MAC {
	t.Helper()
	m, err := lease.ParseMAC(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func config(t *testing.T, raw string) netconf.Config {
	t.Helper()
	c, err := netconf.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func peer(t *testing.T, subnet, ip, hw string) lease.Lease {
	t.Helper()
	return lease.Lease{
		Subnet: lease.Subnet{V4: netip.MustParsePrefix(subnet)},
		Attrs: lease.Attrs{
			PublicIP: netip.MustParseAddr(ip), BackendType: "vxlan",
			BackendData: &lease.VXLAN{VNI: 1, VtepMAC: mac(t, hw)},
		},
	}
}

func input(t *testing.T, peers ...lease.Lease) Input {
	t.Helper()
	own := peer(t, "10.5.1.0/24", "192.168.0.1", "02:00:00:00:00:01")
	return Input{
		Config: config(t, `{"Network":"10.5.0.0/16"}`), Own: own, Peers: peers,
		Uplink:  Uplink{Name: "eth0", MTU: 1500, Addr: own.Attrs.PublicIP},
		VtepMAC: own.Attrs.BackendData.VtepMAC, Masquerade: true, Forward: true,
	}
}

func TestVXLAN(t *testing.T) {
	two := mac(t, "02:00:00:00:00:02")
	s, rejected := vxlan(input(t, peer(t, "10.5.2.0/24", "192.168.0.2", "02:00:00:00:00:02")))
	if len(rejected) != 0 {
		t.Fatal(rejected)
	}
	want := State{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")},
		Uplink:   "eth0",
		Devices: []Device{{
			Name: "flannel.1", VNI: 1, Port: 8472, Parent: "eth0",
			Local: netip.MustParseAddr("192.168.0.1"), MAC: mac(t, "02:00:00:00:00:01"), MTU: 1450,
		}},
		Addrs: []Addr{{"flannel.1", netip.MustParsePrefix("10.5.1.0/32")}},
		Routes: []Route{{
			Dst: netip.MustParsePrefix("10.5.2.0/24"), Via: netip.MustParseAddr("10.5.2.0"),
			Link: "flannel.1", Onlink: true,
		}},
		Neighbours: []Neighbour{{"flannel.1", netip.MustParseAddr("10.5.2.0"), two}},
		FDB:        []FDB{{"flannel.1", two, netip.MustParseAddr("192.168.0.2")}},
		Rules: []Rules{
			{
				Network: netip.MustParsePrefix("10.5.0.0/16"), Subnet: netip.MustParsePrefix("10.5.1.0/24"),
				Masquerade: true, Forward: true,
			},
		},
		Sysctls: []Sysctl{{"net/ipv4/ip_forward", "1"}, {"net/ipv6/conf/flannel.1/accept_ra", "0"}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Fatalf("\n got %+v\nwant %+v", s, want)
	}
}

const two = "02:00:00:00:00:"

type leased = lease.Lease

// group is the MAC of an IPv4 multicast group (RFC 1112).
var group = lease.MAC{1, 0, 0x5e, 0, 0, 1}

var (
	prefix = netip.MustParsePrefix
	addr   = netip.MustParseAddr
)

func TestUntrustedLeasesAreLeftOutAndNoOtherWithThem(t *testing.T) {
	good := peer(t, "10.5.2.0/24", "192.168.0.2", "02:00:00:00:00:02")
	other := func(change func(*leased)) lease.Lease {
		l := peer(t, "10.5.3.0/24", "192.168.0.3", "02:00:00:00:00:03")
		change(&l)
		return l
	}
	vtep := func(hw lease.MAC) lease.Lease {
		return other(func(l *leased) { l.Attrs.BackendData.VtepMAC = hw })
	}
	for reason, bad := range map[string]lease.Lease{
		"its backend is \"host-gw\"": other(func(l *leased) { l.Attrs.BackendType = "host-gw" }),
		"outside the network":        other(func(l *leased) { l.Subnet.V4 = prefix("10.6.0.0/24") }),
		"outside the network 10.5":   other(func(l *leased) { l.Subnet.V4 = prefix("10.0.0.0/8") }),
		"overlaps this node's own":   other(func(l *leased) { l.Subnet.V4 = prefix("10.5.1.128/25") }),
		"overlaps 10.5.2.0/24":       other(func(l *leased) { l.Subnet.V4 = prefix("10.5.2.0/25") }),
		"claims this node's own":     other(func(l *leased) { l.Attrs.PublicIP = addr("192.168.0.1") }),
		"claims this node's own public address fd00::1": other(func(l *leased) {
			l.Attrs.PublicIPv6 = addr("fd00::1")
		}),
		"public address ff02::1 is no node's": other(func(l *leased) { l.Attrs.PublicIPv6 = addr("ff02::1") }),
		"public address :: is no node's":      other(func(l *leased) { l.Attrs.PublicIPv6 = addr("::") }),
		"is no node's":                        other(func(l *leased) { l.Attrs.PublicIP = addr("224.0.0.1") }),
		"names no VTEP":                       other(func(l *leased) { l.Attrs.BackendData = nil }),
		"VTEP MAC 00:00:00:00:00:00":          vtep(lease.MAC{}),
		"VTEP MAC 01:00:5e:00:00:01":          vtep(group),
		"is this node's own":                  vtep(mac(t, two+"01")),
		"is that of 192.168.0.2":              vtep(mac(t, two+"02")),
		"its VNI is 9":                        other(func(l *leased) { l.Attrs.BackendData.VNI = 9 }),
	} {
		in := input(t, good, bad)
		in.Own.Attrs.PublicIPv6 = addr("fd00::1")
		s, rejected := vxlan(in)
		if len(rejected) != 1 || !strings.Contains(rejected[0].Reason, reason) {
			t.Errorf("want one rejected because %q, got %v", reason, rejected)
		}
		if len(s.Routes) != 1 || s.Routes[0].Dst != good.Subnet.V4 {
			t.Errorf("%s: routes %v", reason, s.Routes)
		}
	}
}

// A key of an odd length sorts before the nodes that it covers, and must not take their place.
func TestALeaseOfAnOddLengthTearsNoPeerDown(t *testing.T) {
	good := peer(t, "10.5.30.0/24", "192.168.0.2", "02:00:00:00:00:02")
	wide := peer(t, "10.5.16.0/20", "192.168.0.66", "02:00:00:00:00:66")
	for name, plan := range map[string]func(Input) (State, []Rejected){"vxlan": vxlan, "host-gw": hostGW} {
		in := input(t, wide, good)
		if name == "host-gw" {
			in.Config = config(t, `{"Network":"10.5.0.0/16","Backend":{"Type":"host-gw"}}`)
			in.Peers[0].Attrs.BackendType, in.Peers[1].Attrs.BackendType = name, name
		}
		s, rejected := plan(in)
		if len(rejected) != 1 || len(s.Routes) != 1 || s.Routes[0].Dst != good.Subnet.V4 {
			t.Errorf("%s: routes %v, rejected %v", name, s.Routes, rejected)
		}
	}
	wider := peer(t, "10.5.16.0/20", "192.168.0.66", "02:00:00:00:00:66")
	zero := peer(t, "10.5.30.0/24", "192.168.0.66", "00:00:00:00:00:00")
	for l, want := range map[*lease.Lease]bool{&good: true, &wider: false, &zero: false} {
		if Takes(input(t), *l) != want {
			t.Errorf("%s takes its subnet: %t", l.Subnet, !want)
		}
	}
}

func TestDirectRouting(t *testing.T) {
	in := input(t, peer(t, "10.5.2.0/24", "192.168.0.2", "02:00:00:00:00:02"),
		peer(t, "10.5.3.0/24", "172.20.0.3", "02:00:00:00:00:03"))
	in.Config.Backend.DirectRouting = true
	in.Direct = func(a netip.Addr) bool { return a == netip.MustParseAddr("192.168.0.2") }
	s, _ := vxlan(in)
	want := []Route{
		{Dst: netip.MustParsePrefix("10.5.2.0/24"), Via: netip.MustParseAddr("192.168.0.2"), Link: "eth0"},
		{
			Dst:    netip.MustParsePrefix("10.5.3.0/24"),
			Via:    netip.MustParseAddr("10.5.3.0"),
			Link:   "flannel.1",
			Onlink: true,
		},
	}
	if !reflect.DeepEqual(s.Routes, want) || len(s.FDB) != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestHostGW(t *testing.T) {
	near, far := peer(
		t,
		"10.5.2.0/24",
		"192.168.0.2",
		"02:00:00:00:00:02",
	), peer(
		t,
		"10.5.3.0/24",
		"172.20.0.3",
		"02:00:00:00:00:03",
	)
	near.Attrs.BackendType, far.Attrs.BackendType = "host-gw", "host-gw"
	in := input(t, near, far)
	in.Config = config(t, `{"Network":"10.5.0.0/16","Backend":{"Type":"host-gw"}}`)
	in.Direct = func(a netip.Addr) bool { return a == near.Attrs.PublicIP }
	s, rejected := hostGW(in)
	if len(s.Devices) != 0 || len(s.Routes) != 1 || s.Routes[0].Via != near.Attrs.PublicIP ||
		len(rejected) != 1 {
		t.Fatalf("%+v, %v", s, rejected)
	}
}

func TestHostGWOfBothFamilies(t *testing.T) {
	network := `"EnableIPv6":true,"IPv6Network":"fc00::/48","Backend":{"Type":"host-gw"}}`
	both := peer(t, "10.5.2.0/24", "192.168.0.2", "02:00:00:00:00:02")
	both.Attrs.BackendType = "host-gw"
	both.Subnet.V6, both.Attrs.PublicIPv6 = prefix("fc00:0:0:2::/64"), addr("fd00::2")
	only6 := both
	only6.Subnet.V4, only6.Attrs.PublicIP = netip.Prefix{}, netip.Addr{}
	for name, c := range map[string]struct {
		config string
		peer   lease.Lease
		off    netip.Addr // not on the link
		want   []netip.Prefix
	}{
		"dual-stack": {
			`{"Network":"10.5.0.0/16",` + network, both,
			netip.Addr{},
			[]netip.Prefix{both.Subnet.V4, both.Subnet.V6},
		},
		"dual-stack, IPv6 by a router": {
			`{"Network":"10.5.0.0/16",` + network, both, both.Attrs.PublicIPv6,
			[]netip.Prefix{both.Subnet.V4},
		},
		"IPv6 only": {`{"EnableIPv4":false,` + network, only6, netip.Addr{}, []netip.Prefix{only6.Subnet.V6}},
	} {
		in := input(t, c.peer)
		in.Own.Attrs.PublicIPv6, in.Own.Subnet.V6 = addr("fd00::1"), prefix("fc00:0:0:1::/64")
		in.Config = config(t, c.config)
		in.Direct = func(a netip.Addr) bool { return a.IsValid() && a != c.off }
		s, rejected := hostGW(in)
		var dst []netip.Prefix
		for _, r := range s.Routes {
			dst = append(dst, r.Dst)
		}
		if !reflect.DeepEqual(dst, c.want) || (len(rejected) == 1) != c.off.IsValid() {
			t.Errorf("%s: routes to %v, rejected %v", name, dst, rejected)
		}
	}
}

func TestDualStack(t *testing.T) {
	in := input(t)
	in.Config = config(t, `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fc00::/48"}`)
	in.Uplink.Addr6, in.VtepMAC6 = netip.MustParseAddr("fd00::1"), mac(t, "02:00:00:00:06:01")
	in.Own.Subnet.V6 = netip.MustParsePrefix("fc00:0:0:1::/64")
	both := peer(t, "10.5.2.0/24", "192.168.0.2", "02:00:00:00:00:02")
	both.Subnet.V6 = netip.MustParsePrefix("fc00:0:0:2::/64")
	both.Attrs.PublicIPv6 = netip.MustParseAddr("fd00::2")
	both.Attrs.BackendV6Data = &lease.VXLAN{VNI: 1, VtepMAC: mac(t, "02:00:00:00:06:02")}
	only4 := peer(t, "10.5.3.0/24", "192.168.0.3", "02:00:00:00:00:03")
	in.Peers = []lease.Lease{both, only4}
	s, rejected := vxlan(in)
	if len(rejected) != 0 || len(s.Devices) != 2 || s.Devices[1].Name != "flannel-v6.1" || len(s.Routes) != 3 {
		t.Fatalf("%+v, %v", s, rejected)
	}
	if r := s.Routes[2]; r.Dst != both.Subnet.V6 || r.Link != "flannel-v6.1" ||
		r.Via.String() != "fc00:0:0:2::" {
		t.Fatalf("%+v", r)
	}
	pods := backends["vxlan"].MTU(in.Config, in.Uplink)
	if s.Devices[0].MTU != 1450 || s.Devices[1].MTU != 1430 || pods != 1430 {
		t.Errorf("MTU %d, %d, pods %d", s.Devices[0].MTU, s.Devices[1].MTU, pods)
	}
}

func TestUnknownBackend(t *testing.T) {
	if _, err := BackendOf("ipsec"); err == nil || !strings.Contains(err.Error(), "host-gw, vxlan") {
		t.Fatal(err)
	}
}

func BenchmarkPlan(b *testing.B) {
	var peers []lease.Lease
	for i := range 1000 {
		peers = append(peers, lease.Lease{
			Subnet: lease.Subnet{V4: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256))},
			Attrs: lease.Attrs{
				PublicIP:    netip.AddrFrom4([4]byte{172, 16, byte(i / 256), byte(i)}),
				BackendType: "vxlan",
				BackendData: &lease.VXLAN{VNI: 1, VtepMAC: lease.MAC{2, 1, 0, 0, byte(i / 256), byte(i)}},
			},
		})
	}
	c, err := netconf.Parse([]byte(`{"Network":"10.0.0.0/8"}`))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, rejected := vxlan(Input{Config: c, Peers: peers})
		if len(s.Routes) != 1000 || len(rejected) != 0 {
			b.Fatal(len(s.Routes), rejected)
		}
	}
}
