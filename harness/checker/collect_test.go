package checker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

func TestMain(m *testing.M) {
	if !sandbox.Inside() {
		if _, err := build.Bin(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	sandbox.Enter()
	os.Exit(m.Run())
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// machine is one that is plugged in, under a folder that is a world's.
func machine(t *testing.T) (m *node.Machine, dir string) {
	t.Helper()
	fabric, err := underlay.NewSwitch(pfx("192.168.0.254/24"))
	must(t, err)
	t.Cleanup(func() { must(t, fabric.Close()) })
	dir = filepath.Join(sandbox.Dir, t.Name())
	m, err = node.New(t.Context(), node.Options{
		Name: "node01", Dir: filepath.Join(dir, "node01"), Switch: fabric, Addr: pfx("192.168.0.1/24"),
	})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close(), os.RemoveAll(dir)) })
	return m, dir
}

func ipNet(text string) *net.IPNet {
	p := pfx(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// furnish gives a machine by hand what an agent and the CNI plugins would.
func furnish(t *testing.T, m *node.Machine) {
	t.Helper()
	nl := m.Netlink()
	add := func(l netlink.Link, address string) netlink.Link {
		must(t, nl.LinkAdd(l))
		got, err := nl.LinkByName(l.Attrs().Name)
		must(t, err, nl.AddrAdd(got, &netlink.Addr{IPNet: ipNet(address)}), nl.LinkSetUp(got))
		return got
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	device := add(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "flannel.1", HardwareAddr: mac}, VxlanId: 1, Port: 8472,
	}, "10.5.1.0/32").Attrs().Index
	add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}, "10.5.1.1/24")
	add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth1"}, PeerName: "inside"}, "10.5.1.2/24")
	peer := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	must(t,
		nl.NeighSet(&netlink.Neigh{
			LinkIndex: device, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT,
			Flags: netlink.NTF_SELF, IP: net.IPv4(192, 168, 0, 2), HardwareAddr: peer,
		}),
		nl.NeighSet(&netlink.Neigh{
			LinkIndex: device, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
			IP: net.IPv4(10, 5, 2, 0), HardwareAddr: peer,
		}),
		nl.NeighSet(&netlink.Neigh{
			LinkIndex: device, Family: unix.AF_INET, State: netlink.NUD_STALE,
			IP: net.IPv4(10, 5, 2, 9), HardwareAddr: peer,
		}),
		nl.RouteAdd(&netlink.Route{
			Dst: ipNet("10.5.2.0/24"), LinkIndex: device, Gw: net.IPv4(10, 5, 2, 0),
			Flags: unix.RTNH_F_ONLINK,
		}))
	reserved := m.Path("/var/lib/cni/networks/overlay")
	must(
		t,
		os.MkdirAll(reserved, 0o755),
		os.WriteFile(reserved+"/10.5.1.2", []byte("pod1\r\neth0"), 0o600),
		os.WriteFile(reserved+"/last_reserved_ip.0", []byte("10.5.1.2"), 0o600),
		os.MkdirAll(m.Path("/run/flannel"), 0o755),
		os.WriteFile(
			m.Path("/run/flannel/subnet.env"),
			[]byte("FLANNEL_MTU=1450\nFLANNEL_SUBNET=10.5.1.1/24\n"),
			0o644,
		),
	)
}

// addRule writes one that counts and accepts, with a comment.
func addRule(t *testing.T, m *node.Machine, comment string) {
	t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
	must(t, err)
	table := conn.AddTable(&nftables.Table{Name: "mine", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: []byte(comment), Exprs: []expr.Any{
		&expr.Counter{Packets: uint64(len(comment))}, &expr.Verdict{Kind: expr.VerdictAccept},
	}})
	must(t, conn.Flush())
}

func TestCollectReadsAMachine(t *testing.T) {
	m, _ := machine(t)
	furnish(t, m)
	addRule(t, m, "one")
	addRule(t, m, "another")
	n, err := Collect(m, "flannel.1", "/run/flannel/subnet.env")
	must(t, err)
	overlay := n.Overlay(pfx("10.5.0.0/16"))
	want := Entries("flannel.1", "eth0", flannelkeys.Lease{
		Subnet:   pfx("10.5.2.0/24"),
		PublicIP: addr("192.168.0.2"), VtepMAC: "02:00:00:00:00:02",
	})
	if !slices.Equal(overlay, want) {
		t.Errorf("entries %q, want %q", overlay, want)
	}
	if light, err := Overlay(m, "flannel.1", pfx("10.5.0.0/16")); err != nil || !slices.Equal(light, want) {
		t.Errorf("entries %q (%v), want %q", light, err, want)
	}
	if n.MAC != "02:00:00:00:00:01" || !slices.Equal(n.Addrs, []netip.Addr{addr("192.168.0.1")}) ||
		n.Gateway != pfx(
			"10.5.1.1/24",
		) || !n.HasBridge || !slices.Equal(n.Bridge, []netip.Prefix{pfx("10.5.1.1/24")}) {
		t.Errorf("%+v", n)
	}
	if len(n.Veths) != 2 ||
		!slices.Equal(n.Reservations, []Reservation{{"overlay", addr("10.5.1.2"), "pod1"}}) {
		t.Errorf("veths %v, reservations %v", n.Veths, n.Reservations)
	}
	if wrong := noRuleTwice(Snapshot{Nodes: []Node{n}}); len(wrong) != 1 {
		t.Errorf("two rules that differ in count and comment only: %q, %+v", wrong, n.Rules)
	}
	pod, err := CollectPod("pod1", m.NetNS(), "veth1")
	must(t, err)
	if inside := n.Veths[slices.IndexFunc(n.Veths,
		func(v observe.Link) bool { return v.Name == "inside" })]; pod.Peer != inside.Index ||
		!slices.Equal(pod.Addrs, []netip.Addr{addr("10.5.1.2")}) {
		t.Errorf("%+v, veths %v", pod, n.Veths)
	}
}

func TestWhatAWorldLeavesIsFound(t *testing.T) {
	m, dir := machine(t)
	links, err := SandboxLinks()
	must(t, err)
	w := NewTraces(dir, links)
	defer w.Close()
	must(t, w.HoldMachine(m))
	p, err := m.Start(t.Context(), node.Command{Name: "sleep", Path: "/bin/sleep", Args: []string{"1000"}})
	must(t, err)
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "forgotten"}}))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	left, err := w.Left()
	must(t, err)
	all := strings.Join(left, "\n")
	for _, want := range []string{
		"the folder " + dir, "the mount " + dir, "of node01: /bin/sleep 1000",
		"the namespace net:[", "the namespace mnt:[", "the link forgotten in the sandbox",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("want %q in:\n%s", want, all)
		}
	}
	must(t, unix.Unmount(dir, 0), p.Kill(t.Context()), m.Close(), os.RemoveAll(dir),
		netlink.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "forgotten"}}))
	if left, err := w.Left(); err != nil || len(left) > 0 {
		t.Errorf("%q %v", left, err)
	}
}
