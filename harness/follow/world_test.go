package follow_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

// world is three nodes with a VXLAN device, a bridge and a pod each, as flannel lays them out, made with
// plain netlink so that every part can be broken. Node n has 192.168.200.20n, the subnet 172.16.n.0/24, the
// device's MAC 0a:00:00:00:00:0n, and pod n at 172.16.n.2.
type world struct {
	tb    testing.TB
	fab   *underlay.Switch
	nodes []*node.Machine
	pods  []netns.NsHandle
	given map[int]int // to whom a node's subnet has been given
}

const (
	device = "flannel.1"
	bridge = "cni0"
)

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{tb: tb}
	var err error
	w.fab, err = underlay.NewSwitch(netip.MustParsePrefix("192.168.200.1/24"))
	w.must(err)
	tb.Cleanup(func() { w.must(w.fab.Close()) })
	dir, err := os.MkdirTemp(sandbox.Dir, "packet-")
	w.must(err)
	tb.Cleanup(func() { w.must(os.RemoveAll(dir)) })
	for n := 1; n <= 3; n++ {
		name := w.name(n)
		m, err := node.New(tb.Context(), node.Options{
			Name: name, Dir: filepath.Join(dir, name), Switch: w.fab, Addr: netip.PrefixFrom(w.uplink(n), 24),
		})
		w.must(err)
		tb.Cleanup(func() { w.must(m.Close()) })
		w.nodes = append(w.nodes, m)
		w.must(m.Sysctl("net.ipv4.ip_forward", "1"))
		w.addDevice(n, 1, 8472)
		w.addPod(n)
	}
	for n := 1; n <= 3; n++ {
		w.addPeers(n)
	}
	return w
}

func (w *world) must(err error) {
	w.tb.Helper()
	if err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) name(n int) string { return fmt.Sprintf("node%02d", n) }
func (w *world) uplink(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, 200, byte(200 + n)})
}
func (w *world) subnet(n int) netip.Prefix  { return netip.PrefixFrom(w.vtep(n), 24) }
func (w *world) vtep(n int) netip.Addr      { return netip.AddrFrom4([4]byte{172, 16, byte(n), 0}) }
func (w *world) pod(n int) netip.Addr       { return netip.AddrFrom4([4]byte{172, 16, byte(n), 2}) }
func (w *world) mac(n int) net.HardwareAddr { return net.HardwareAddr{10, 0, 0, 0, 0, byte(n)} }
func (w *world) nl(n int) *netlink.Handle   { return w.nodes[n-1].Netlink() }

// link finds a link of node n.
func (w *world) link(n int, name string) netlink.Link {
	w.tb.Helper()
	l, err := w.nl(n).LinkByName(name)
	w.must(err)
	return l
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// addDevice makes node n's VXLAN device.
func (w *world) addDevice(n, vni, port int) {
	w.tb.Helper()
	w.must(w.nl(n).LinkAdd(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: device, HardwareAddr: w.mac(n), MTU: 1450},
		VxlanId:   vni, Port: port, SrcAddr: w.uplink(n).AsSlice(),
		VtepDevIndex: w.link(n, node.Uplink).Attrs().Index,
	}))
	w.must(w.nl(n).AddrAdd(w.link(n, device), &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(w.vtep(n), 32))}))
	w.must(w.nl(n).LinkSetUp(w.link(n, device)))
}

// addPod makes node n's bridge and its pod.
func (w *world) addPod(n int) {
	w.tb.Helper()
	nl := w.nl(n)
	w.must(nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{
		Name: bridge, HardwareAddr: net.HardwareAddr{10, 1, 0, 0, 0, byte(n)}, MTU: 1450,
	}}))
	br := w.link(n, bridge)
	gateway := w.vtep(n).Next()
	w.must(nl.AddrAdd(br, &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(gateway, 24))}))
	w.must(nl.LinkSetUp(br))
	handle, err := ns.New()
	w.must(err)
	w.tb.Cleanup(func() { w.must(handle.Close()) })
	w.pods = append(w.pods, handle)
	w.must(nl.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "veth1", MasterIndex: br.Attrs().Index, MTU: 1450},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(handle), PeerMTU: 1450,
		PeerHardwareAddr: net.HardwareAddr{10, 2, 0, 0, 0, byte(n)},
	}))
	w.must(nl.LinkSetUp(w.link(n, "veth1")))
	w.inPod(n, func(nl *netlink.Handle, eth0 netlink.Link) error {
		return errors.Join(
			nl.AddrAdd(eth0, &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(w.pod(n), 24))}),
			nl.LinkSetUp(eth0),
			nl.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gateway.AsSlice()}),
		)
	})
}

// inPod works on pod n's link.
func (w *world) inPod(n int, work func(*netlink.Handle, netlink.Link) error) {
	w.tb.Helper()
	nl, err := netlink.NewHandleAt(w.pods[n-1], unix.NETLINK_ROUTE)
	w.must(err)
	defer nl.Close()
	eth0, err := nl.LinkByName("eth0")
	w.must(err)
	w.must(work(nl, eth0))
}

// addPeers gives node n what a flannel agent gives it for the other nodes.
func (w *world) addPeers(n int) {
	w.tb.Helper()
	for peer := 1; peer <= 3; peer++ {
		if peer == n {
			continue
		}
		w.must(w.nl(n).NeighSet(w.neighbour(n, peer)))
		w.must(w.nl(n).NeighSet(w.fdb(n, peer)))
		w.must(w.nl(n).RouteReplace(w.route(n, peer)))
	}
}

func (w *world) neighbour(n, peer int) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: w.link(n, device).Attrs().Index, IP: w.vtep(peer).AsSlice(),
		HardwareAddr: w.mac(peer), State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST,
	}
}

func (w *world) fdb(n, peer int) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: w.link(n, device).Attrs().Index, IP: w.uplink(peer).AsSlice(),
		HardwareAddr: w.mac(peer), State: netlink.NUD_PERMANENT, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
	}
}

func (w *world) route(n, peer int) *netlink.Route {
	return &netlink.Route{
		Dst: ipnet(w.subnet(peer)), LinkIndex: w.link(n, device).Attrs().Index,
		Gw: w.vtep(peer).AsSlice(), Flags: unix.RTNH_F_ONLINK,
	}
}

// path is that from pod a to pod b.
func (w *world) path(a, b int) follow.Path {
	end := func(n int) follow.End {
		return follow.End{
			Name: fmt.Sprintf("pod%d", n), Addr: w.pod(n), Node: w.name(n), Device: "eth0",
			NS: w.pods[n-1],
		}
	}
	p := follow.Path{From: end(a), To: end(b), Switch: w.fab.NetNS(), Wait: 1300 * time.Millisecond}
	for n := 1; n <= 3; n++ {
		p.Nodes = append(p.Nodes, follow.Node{
			Name: w.name(n), Addr: w.uplink(n), Bridge: bridge, Device: device,
			Uplink: node.Uplink, Port: w.name(n), NS: w.nodes[n-1].NetNS(),
		})
		owner := n
		if m, ok := w.given[n]; ok {
			owner = m
		}
		p.Leases = append(p.Leases, flannelkeys.Lease{
			Subnet: w.subnet(n), PublicIP: w.uplink(owner),
			VtepMAC: w.mac(owner).String(),
		})
	}
	return p
}

// rule puts a rule at the end of a chain of node n, with a policy of the chain.
func (w *world) rule(n int, hook *nftables.ChainHook, policy nftables.ChainPolicy, exprs ...expr.Any) {
	w.tb.Helper()
	w.ruleIn(w.nodes[n-1].NetNS(), hook, policy, exprs...)
}

func (w *world) ruleIn(
	handle netns.NsHandle,
	hook *nftables.ChainHook,
	policy nftables.ChainPolicy,
	exprs ...expr.Any,
) {
	w.tb.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(handle)))
	w.must(err)
	kind, priority := nftables.ChainTypeFilter, nftables.ChainPriorityFilter
	if hook == nftables.ChainHookPostrouting {
		kind, priority = nftables.ChainTypeNAT, nftables.ChainPriorityNATSource
	}
	names := map[nftables.ChainHook]string{
		*nftables.ChainHookForward:     "FORWARD",
		*nftables.ChainHookInput:       "INPUT",
		*nftables.ChainHookOutput:      "OUTPUT",
		*nftables.ChainHookPostrouting: "POSTROUTING",
	}
	table := conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{
		Name: names[*hook], Table: table, Type: kind, Hooknum: hook,
		Priority: priority, Policy: &policy,
	})
	if len(exprs) > 0 {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	}
	w.must(conn.Flush())
}

// to matches packets to the subnet of node n.
func (w *world) to(n int) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4, Mask: []byte{255, 255, 255, 0},
			Xor: []byte{0, 0, 0, 0},
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: w.vtep(n).AsSlice()},
	}
}
