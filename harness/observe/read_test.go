package observe_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/wait"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

var (
	addr = netip.MustParseAddr
	pfx  = netip.MustParsePrefix
)

func must(tb testing.TB, errs ...error) {
	tb.Helper()
	for _, err := range errs {
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func ipNet(text string) *net.IPNet {
	p := pfx(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// furnished is a network namespace with a bit of everything.
func furnished(tb testing.TB) netns.NsHandle {
	tb.Helper()
	handle, err := ns.New()
	must(tb, err)
	tb.Cleanup(func() { must(tb, handle.Close()) })
	// The kernel gives links no IPv6 addresses of its own, which would come at some later moment.
	must(tb, ns.Do(handle, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/addr_gen_mode", []byte("1"), 0o644)
	}))
	nl, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	must(tb, err)
	tb.Cleanup(nl.Close)
	add := func(l netlink.Link, addresses ...string) int {
		must(tb, nl.LinkAdd(l))
		got, err := nl.LinkByName(l.Attrs().Name)
		must(tb, err)
		for _, a := range addresses {
			must(tb, nl.AddrAdd(got, &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}))
		}
		must(tb, nl.LinkSetUp(got))
		return got.Attrs().Index
	}
	mac, peer := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	bridge := add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}, "10.5.1.1/24")
	eth0 := add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "port"}, "192.168.0.1/24",
		"fd00::1/64")
	port, err := nl.LinkByName("port")
	must(tb, err, nl.LinkSetUp(port), nl.LinkSetMasterByIndex(port, bridge))
	device := add(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "flannel.1", HardwareAddr: mac, MTU: 1450},
		VxlanId:   1, Port: 8472, SrcAddr: net.IPv4(192, 168, 0, 1), VtepDevIndex: eth0,
	}, "10.5.1.0/32")
	neighbour := func(link, family, state int, ip string) *netlink.Neigh {
		n := &netlink.Neigh{
			LinkIndex: link, Family: family, State: state, IP: addr(ip).AsSlice(),
			HardwareAddr: peer,
		}
		if family == unix.AF_BRIDGE {
			n.Flags = netlink.NTF_SELF
		}
		return n
	}
	must(tb,
		nl.NeighSet(neighbour(device, unix.AF_BRIDGE, netlink.NUD_PERMANENT, "192.168.0.2")),
		nl.NeighSet(neighbour(device, unix.AF_INET, netlink.NUD_PERMANENT, "10.5.2.0")),
		nl.NeighSet(neighbour(eth0, unix.AF_INET6, netlink.NUD_STALE, "fd00::2")),
		nl.RouteAdd(&netlink.Route{
			Dst: ipNet("10.5.2.0/24"), LinkIndex: device, Gw: net.IPv4(10, 5, 2, 0),
			Flags: unix.RTNH_F_ONLINK, Priority: 7,
		}),
		nl.RouteAdd(&netlink.Route{LinkIndex: eth0, Gw: net.IPv4(192, 168, 0, 254)}),
		nl.RouteAdd(&netlink.Route{Dst: ipNet("10.5.3.0/24"), MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: eth0, Gw: net.IPv4(192, 168, 0, 3)}, {LinkIndex: eth0, Gw: net.IPv4(192, 168, 0, 4)},
		}}),
		nl.RouteAdd(&netlink.Route{Dst: ipNet("10.5.9.0/24"), Type: unix.RTN_BLACKHOLE}),
		nl.RouteAdd(&netlink.Route{Dst: ipNet("fc00:2::/64"), LinkIndex: eth0, Gw: addr("fd00::2").AsSlice()}))
	conn, err := nftables.New(nftables.WithNetNSFd(int(handle)))
	must(tb, err)
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		table := conn.AddTable(&nftables.Table{Name: "mine", Family: family})
		chain := conn.AddChain(&nftables.Chain{
			Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		})
		for n := range 2 {
			exprs := []expr.Any{&expr.Counter{Packets: uint64(n)}, &expr.Verdict{Kind: expr.VerdictAccept}}
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: []byte{0, 1, byte(n)}, Exprs: exprs})
		}
	}
	must(tb, conn.Flush())
	return handle
}

func TestReadReadsWhatANamespaceHolds(t *testing.T) {
	handle := furnished(t)
	s, err := observe.Read(handle)
	must(t, err)
	device, ok := s.Link("flannel.1")
	device.Index = 0
	want := observe.Link{
		Name: "flannel.1", Type: "vxlan", Up: true, Carrier: true, MTU: 1450,
		MAC: "02:00:00:00:00:01", VNI: 1, Port: 8472, Local: addr("192.168.0.1"),
	}
	if !ok || device != want {
		t.Errorf("%+v, want %+v", device, want)
	}
	eth0, _ := s.Link("eth0")
	port, _ := s.LinkAt(eth0.Peer)
	bridge, _ := s.LinkAt(port.Master)
	if port.Name != "port" || bridge.Name != "cni0" || bridge.Type != "bridge" {
		t.Errorf("eth0 leads to %+v, which is on %+v", port, bridge)
	}
	if all := s.AddressesOf("eth0"); !slices.Equal(all, []netip.Prefix{
		pfx("192.168.0.1/24"),
		pfx("fd00::1/64"),
	}) || !s.Holds(addr("fd00::1")) || s.Holds(addr("192.168.0.2")) {
		t.Errorf("addresses %v", all)
	}
	for dst, want := range map[string]observe.Route{
		"10.5.2.9": {Dst: pfx("10.5.2.0/24"), Via: addr("10.5.2.0"), Device: "flannel.1", Metric: 7, OnLink: true},
		"10.5.3.9": {Dst: pfx("10.5.3.0/24"), Via: addr("192.168.0.3"), Device: "eth0", Hops: []observe.Hop{
			{Via: addr("192.168.0.3"), Device: "eth0"}, {Via: addr("192.168.0.4"), Device: "eth0"},
		}},
		"10.5.9.9":    {Dst: pfx("10.5.9.0/24"), Type: "blackhole"},
		"10.5.1.1":    {Dst: pfx("10.5.1.1/32"), Device: "cni0", Type: "local", Table: 255},
		"192.168.0.7": {Dst: pfx("192.168.0.0/24"), Device: "eth0", ScopeLink: true},
		"8.8.8.8":     {Dst: pfx("0.0.0.0/0"), Via: addr("192.168.0.254"), Device: "eth0"},
		"fc00:2::9":   {Dst: pfx("fc00:2::/64"), Via: addr("fd00::2"), Device: "eth0", Metric: 1024},
	} {
		if want.Type == "" {
			want.Type = "unicast"
		}
		if want.Table == 0 {
			want.Table = unix.RT_TABLE_MAIN
		}
		if got, ok := s.Lookup(addr(dst)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("to %s leads\n%+v, want\n%+v", dst, got, want)
		}
	}
	peer := observe.Neighbour{
		Device: "flannel.1", IP: addr("10.5.2.0"), MAC: "02:00:00:00:00:02",
		State: "PERMANENT",
	}
	if n, ok := s.Neighbour("flannel.1", peer.IP); !ok || n != peer || !n.Permanent() {
		t.Errorf("neighbour %+v", n)
	}
	if n, ok := s.Neighbour("eth0", addr("fd00::2")); !ok || n.State != "STALE" || n.Permanent() {
		t.Errorf("neighbour %+v", n)
	}
	peer.IP = addr("192.168.0.2")
	if !slices.Equal(s.FDB, []observe.Neighbour{peer}) {
		t.Errorf("forwarding entries %v", s.FDB)
	}
	if len(s.Rules) != 4 || s.Rules[0].Exact != s.Rules[1].Exact || s.Rules[0].Text != "accept" ||
		s.Rules[0].Handle == s.Rules[1].Handle || s.Rules[0].Family != "ip" || s.Rules[3].Family != "ip6" {
		t.Errorf("rules %+v", s.Rules)
	}
	if s.Sysctl("conf/eth0/forwarding") != 0 || s.Sysctls["ip_forward"] == "" || s.Sysctl("none") != 0 {
		t.Errorf("sysctls %v", s.Sysctls)
	}
}

func TestReadOfSomeTables(t *testing.T) {
	handle := furnished(t)
	var all observe.State
	// The kernel goes on for a while with what new links bring about, such as carriers and multicast groups.
	err := wait.Within(t.Context(), 5*time.Second, 10*time.Millisecond, func(context.Context) (err error) {
		if all, err = observe.Read(handle); err != nil {
			return err
		}
		for table, want := range map[observe.Table]observe.State{
			observe.AddressTable: {Addresses: all.Addresses}, observe.RouteTable: {Routes: all.Routes},
			observe.NeighbourTable: {Neighbours: all.Neighbours}, observe.ForwardingTable: {FDB: all.FDB},
			observe.RuleTable: {Rules: all.Rules}, observe.SysctlTable: {Sysctls: all.Sysctls},
		} {
			want.Links = all.Links
			if got, err := observe.Read(handle, table); err != nil || !reflect.DeepEqual(got, want) {
				return fmt.Errorf("table %d is read as\n%+v, want\n%+v (%w)", table, got, want, err)
			}
		}
		return nil
	})
	must(t, err)
	fdb, err := observe.FDB(handle, "flannel.1")
	if err != nil || !slices.Equal(fdb, all.FDB) {
		t.Errorf("forwarding entries %v (%v)", fdb, err)
	}
	if n, err := observe.Neighbours(handle, "flannel.1"); err != nil || !slices.ContainsFunc(n,
		func(n observe.Neighbour) bool { return n.String() == "10.5.2.0 02:00:00:00:00:02 PERMANENT" }) {
		t.Errorf("neighbours %v (%v)", n, err)
	}
	if _, err := observe.FDB(handle, "flannel.9"); err == nil || !strings.Contains(err.Error(), "flannel.9") {
		t.Errorf("the entries of a device that is not there: %v", err)
	}
	hops, err := observe.Gateways(handle)
	slices.SortFunc(hops, netip.Addr.Compare)
	if err != nil || !slices.Equal(hops, []netip.Addr{addr("10.5.2.0"), addr("192.168.0.254")}) {
		t.Errorf("next hops %v (%v)", hops, err)
	}
	handles, err := observe.RuleHandles(handle)
	must(t, err)
	set, err := observe.RuleSet(handle)
	must(t, err)
	if len(handles) != 4 || handles[0] == handles[1] || len(set) != 4 || set[0] != set[1] {
		t.Errorf("rules %q %q", handles, set)
	}
}
