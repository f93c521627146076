package follow_test

import (
	"errors"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/ns"
)

// underlay is node n's address with that of its network.
func (w *world) underlay(n int) netip.Prefix { return netip.PrefixFrom(w.uplink(n), 24) }

func pods() []broken {
	return []broken{
		{
			name: "veth off the bridge", cause: follow.VethDetached,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkSetNoMaster(w.link(2, "veth1"))) },
			sentence: `request lost on node02 at veth1: veth1, the veth of pod2, is not on cni0` + gaveUp,
		},
		{
			name: "veth of the source off the bridge", cause: follow.VethDetached,
			breakIt: func(w *world) { w.must(w.nl(1).LinkSetNoMaster(w.link(1, "veth1"))) },
			// The node answers for the gateway on any link (arp_ignore), so that the request goes its way.
			sentence: `reply lost on node01 at veth1: veth1, the veth of pod1, is not on cni0` + gaveUp,
		},
		{
			name: "veth down", cause: follow.VethDown,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkSetDown(w.link(2, "veth1"))) },
			sentence: `request lost on node02 at veth1: veth1, the veth of pod2, is down` + gaveUp,
		},
		{
			name: "veth gone", cause: follow.PodLinkMissing,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkDel(w.link(2, "veth1"))) },
			sentence: `request lost on node02 at cni0: there is no veth of pod2 on node02` + gaveUp,
		},
		{
			name: "link of the source gone", cause: follow.PodLinkMissing,
			breakIt:  func(w *world) { w.must(w.nl(1).LinkDel(w.link(1, "veth1"))) },
			sentence: `request lost on pod1 at eth0: pod1 has no eth0`,
		},
		{
			name: "link of the pod down", cause: follow.PodLinkDown,
			breakIt: func(w *world) {
				w.inPod(2, func(nl *netlink.Handle, eth0 netlink.Link) error { return nl.LinkSetDown(eth0) })
			},
			sentence: `request lost on pod2 at eth0: eth0 of pod2 is down` + gaveUp,
		},
		{
			name: "pod without a default route", cause: follow.PodNoRoute,
			breakIt:  func(w *world) { w.podWithoutRoute(1) },
			sentence: `request lost on pod1 at eth0: pod1 has no route to 172\.16\.2\.2, and no default route`,
		},
		{
			name: "pod without a default route for the reply", cause: follow.PodNoRoute,
			breakIt:  func(w *world) { w.podWithoutRoute(2) },
			sentence: `reply lost on pod2 at eth0: pod2 has no route to 172\.16\.1\.2, and no default route`,
		},
		{
			name: "pod has another address", cause: follow.PodAddressMissing,
			breakIt: func(w *world) {
				w.inPod(2, func(nl *netlink.Handle, eth0 netlink.Link) error {
					other := netip.PrefixFrom(w.pod(2).Next(), 24)
					return errors.Join(nl.AddrDel(eth0, &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(w.pod(2), 24))}),
						nl.AddrAdd(eth0, &netlink.Addr{IPNet: ipnet(other)}))
				})
			},
			sentence: `request lost on node02 at cni0: neighbour 172\.16\.2\.2 is ` + asked +
				`: pod2 does not have that address` + gaveUp,
		},
		{
			name: "gateway's address missing", cause: follow.GatewayMissing,
			breakIt: func(w *world) {
				gateway := netip.PrefixFrom(w.vtep(1).Next(), 24)
				w.must(w.nl(1).AddrDel(w.link(1, bridge), &netlink.Addr{IPNet: ipnet(gateway)}))
			},
			sentence: `request lost on node01 at cni0: cni0 does not have the address 172\.16\.1\.1, which is the ` +
				`gateway of pod1 \(who-has unanswered (once|\d+ times)\)` + gaveUp,
		},
		{
			name: "echoes ignored", cause: follow.EchoRefused,
			breakIt: func(w *world) {
				w.must(ns.Do(w.pods[1], func() error {
					return os.WriteFile("/proc/sys/net/ipv4/icmp_echo_ignore_all", []byte("1"), 0o644)
				}))
			},
			sentence: `reply lost on pod2 at eth0: pod2 got the request and ignores echoes ` +
				`\(net\.ipv4\.icmp_echo_ignore_all = 1\)`,
		},
		{
			name: "from a node to a pod whose link is down", cause: follow.PodLinkDown,
			path: func(w *world) follow.Path {
				p := w.path(1, 2)
				p.From = follow.End{Name: "node01", Addr: w.uplink(1), Node: "node01"}
				return p
			},
			breakIt: func(w *world) {
				w.inPod(2, func(nl *netlink.Handle, eth0 netlink.Link) error { return nl.LinkSetDown(eth0) })
			},
			sentence: `request lost on pod2 at eth0: eth0 of pod2 is down` + gaveUp,
		},
		{
			name: "on one node", cause: follow.PodLinkDown,
			path: func(w *world) follow.Path {
				p := w.path(2, 2)
				p.From = follow.End{Name: "node02", Addr: w.uplink(2), Node: "node02"}
				return p
			},
			breakIt: func(w *world) {
				w.inPod(2, func(nl *netlink.Handle, eth0 netlink.Link) error { return nl.LinkSetDown(eth0) })
			},
			sentence: `request lost on pod2 at eth0: eth0 of pod2 is down` + gaveUp,
		},
	}
}

func (w *world) podWithoutRoute(n int) {
	w.inPod(n, func(nl *netlink.Handle, eth0 netlink.Link) error {
		return nl.RouteDel(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: w.vtep(n).Next().AsSlice()})
	})
}

func sizes() []broken {
	sized := func(size int) func(*world) follow.Path {
		return func(w *world) follow.Path {
			p := w.path(1, 2)
			p.Size = size
			return p
		}
	}
	podMTU := func(mtu int) func(w *world) {
		return func(w *world) {
			w.must(w.nl(1).LinkSetMTU(w.link(1, "veth1"), mtu))
			w.must(w.nl(1).LinkSetMTU(w.link(1, bridge), mtu))
			w.inPod(1, func(nl *netlink.Handle, eth0 netlink.Link) error { return nl.LinkSetMTU(eth0, mtu) })
		}
	}
	return []broken{
		{
			name:    "larger than the VXLAN device's MTU",
			cause:   follow.PacketTooBig,
			path:    sized(1500),
			breakIt: podMTU(1500),
			sentence: `request lost on node01 at flannel\.1: larger than the path's MTU by 50 bytes \(flannel\.1 ` +
				`takes 1450\); ICMP fragmentation needed, MTU 1450 \(type 3 code 4\) from node01 \(172\.16\.1\.1\)`,
		},
		{
			name: "larger than the pod's MTU", cause: follow.PacketTooBig, path: sized(1480),
			breakIt:  func(*world) {},
			sentence: `request lost on pod1 at eth0: larger than the path's MTU by 30 bytes \(eth0 takes 1450\)`,
		},
		{
			name:    "larger than the destination's uplink takes",
			cause:   follow.MTUBlackHole,
			path:    sized(1450),
			breakIt: func(w *world) { w.must(w.nl(2).LinkSetMTU(w.link(2, node.Uplink), 1400)) },
			sentence: `request lost on node02 at eth0: larger than the path's MTU by 100 bytes \(eth0 takes ` +
				`1400\), and dropped without a word`,
		},
	}
}
