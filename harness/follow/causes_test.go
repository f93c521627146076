package follow_test

import (
	"net"
	"regexp"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/node"
)

// broken is one way to lose a packet: what is done to the world, and what must be said then. The packet goes
// from pod1 to pod2 unless path says otherwise.
type broken struct {
	name     string
	breakIt  func(*world)
	path     func(*world) follow.Path
	cause    follow.Cause
	sentence string // a regular expression for the whole sentence
}

const (
	// reasons is what root gets to know in addition.
	reasons = `(; the kernel's drop reason: [A-Z_, ]+)?`
	// asked is what an address becomes that nobody answers for; how often it is asked for before the kernel
	// gives up, and says so, depends on how busy the machine is.
	asked  = `(INCOMPLETE|FAILED) \(who-has unanswered (once|\d+ times)\)`
	gaveUp = `(; ICMP host unreachable \(type 3 code 1\) from \S+ \(\S+\))?`
)

func TestEachCauseIsTold(t *testing.T) {
	var all []broken
	for _, some := range [][]broken{routes(), devices(), tunnels(), underlays(), rules(), pods(), sizes()} {
		all = append(all, some...)
	}
	causes := map[follow.Cause]bool{}
	for _, b := range all {
		causes[b.cause] = true
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b.breakIt(w)
			path := w.path(1, 2)
			if b.path != nil {
				path = b.path(w)
			}
			trace, err := follow.Follow(t.Context(), path)
			w.must(err)
			if trace.Cause != b.cause {
				t.Errorf("cause %q, want %q", trace.Cause, b.cause)
			}
			if !regexp.MustCompile("^" + b.sentence + reasons + "$").MatchString(trace.Sentence) {
				t.Errorf("got  %s\nwant %s", trace.Sentence, b.sentence)
			}
			if again := follow.Explain(trace.Observation); again != trace.Verdict {
				t.Errorf("judged again: %+v", again)
			}
			if t.Failed() {
				for _, h := range trace.Hops {
					t.Logf("%+v", h)
				}
				for _, n := range trace.Notes {
					t.Log(n)
				}
			}
		})
	}
	if len(causes) < 20 {
		t.Errorf("only %d causes are told apart", len(causes))
	}
}

// reverse is the path of which the reply takes the broken way.
func reverse(w *world) follow.Path { return w.path(2, 1) }

func (w *world) typed(n, peer, kind int) {
	w.must(w.nl(n).RouteDel(w.route(n, peer)))
	w.must(w.nl(n).RouteAdd(&netlink.Route{Dst: ipnet(w.subnet(peer)), Type: kind}))
}

func routes() []broken {
	return []broken{
		{
			name:    "no route, and no default route",
			cause:   follow.NoRoute,
			breakIt: func(w *world) { w.noDefault(1); w.must(w.nl(1).RouteDel(w.route(1, 2))) },
			sentence: `request lost on node01 at flannel\.1: no route on node01 to 172\.16\.2\.0/24; ` +
				`ICMP network unreachable \(type 3 code 0\) from node01 \(172\.16\.1\.1\)`,
		},
		{
			name:    "no route but the default route",
			cause:   follow.NoRoute,
			breakIt: func(w *world) { w.must(w.nl(1).RouteDel(w.route(1, 2))) },
			sentence: `request lost on node01 at flannel\.1: no route on node01 to 172\.16\.2\.0/24: ` +
				`it takes "default via 192\.168\.200\.1 dev eth0".*`,
		},
		{
			name:    "no route for the reply",
			cause:   follow.NoRoute,
			breakIt: func(w *world) { w.noDefault(2); w.must(w.nl(2).RouteDel(w.route(2, 1))) },
			sentence: `reply lost on node02 at flannel\.1: no route on node02 to 172\.16\.1\.0/24` +
				`; ICMP network unreachable \(type 3 code 0\) from node02 \(172\.16\.2\.1\)`,
		},
		{
			name:  "route to a wrong device",
			cause: follow.WrongDevice,
			breakIt: func(w *world) {
				w.must(w.nl(1).RouteReplace(&netlink.Route{
					Dst: ipnet(w.subnet(2)), Scope: unix.RT_SCOPE_LINK,
					LinkIndex: w.link(1, node.Uplink).Attrs().Index,
				}))
			},
			sentence: `request lost on node01 at flannel\.1: node01 has the route "172\.16\.2\.0/24 dev eth0", ` +
				`which does not lead to flannel\.1` + gaveUp,
		},
		{
			name: "blackhole route", cause: follow.BlackholeRoute,
			breakIt:  func(w *world) { w.typed(1, 2, unix.RTN_BLACKHOLE) },
			sentence: `request lost on node01 at flannel\.1: node01 has the route "blackhole 172\.16\.2\.0/24".*`,
		},
		{
			name: "unreachable route", cause: follow.UnreachableRoute,
			breakIt: func(w *world) { w.typed(1, 2, unix.RTN_UNREACHABLE) },
			sentence: `request lost on node01 at flannel\.1: node01 has the route "unreachable 172\.16\.2\.0/24"; ` +
				`ICMP host unreachable \(type 3 code 1\) from node01 \(172\.16\.1\.1\)`,
		},
		{
			name: "prohibit route", cause: follow.ProhibitRoute,
			breakIt: func(w *world) { w.typed(1, 2, unix.RTN_PROHIBIT) },
			sentence: `request lost on node01 at flannel\.1: node01 has the route "prohibit 172\.16\.2\.0/24"; ` +
				`ICMP administratively prohibited \(type 3 code 13\) from node01 \(172\.16\.1\.1\)`,
		},
		{
			name: "own subnet into the tunnel", cause: follow.OwnSubnetTunnelled,
			breakIt: func(w *world) {
				w.must(w.nl(2).RouteReplace(&netlink.Route{
					Dst: ipnet(w.subnet(2)), Gw: w.vtep(3).AsSlice(),
					LinkIndex: w.link(2, device).Attrs().Index, Flags: unix.RTNH_F_ONLINK,
				}))
				w.connectedGone(2)
			},
			sentence: `request lost on node02 at flannel\.1: node02 sends its own subnet into the tunnel ` +
				`\("172\.16\.2\.0/24 via 172\.16\.3\.0 dev flannel\.1"\).*`,
		},
		{
			name: "routing loop", cause: follow.RoutingLoop,
			breakIt: func(w *world) {
				for n, via := range map[int]int{1: 3, 3: 1} {
					r := w.route(n, 2)
					r.Gw = w.vtep(via).AsSlice()
					w.must(w.nl(n).RouteReplace(r))
				}
			},
			sentence: `request lost on node01 at flannel\.1: it goes round between node01 and node03 until its TTL ` +
				`ends: node01 has "172\.16\.2\.0/24 via 172\.16\.3\.0 dev flannel\.1", node03 has "172\.16\.2\.0/24 ` +
				`via 172\.16\.1\.0 dev flannel\.1"; ICMP TTL exceeded \(type 11 code 0\) from node0[13] \(.*\)`,
		},
	}
}

func (w *world) noDefault(n int) {
	w.must(w.nl(n).RouteDel(&netlink.Route{
		LinkIndex: w.link(n, node.Uplink).Attrs().Index,
		Gw:        w.fab.Gateway().AsSlice(),
	}))
}

// connectedGone removes the route that came with the bridge's address.
func (w *world) connectedGone(n int) {
	_ = w.nl(n).RouteDel(&netlink.Route{
		LinkIndex: w.link(n, bridge).Attrs().Index, Dst: ipnet(w.subnet(n)),
		Scope: unix.RT_SCOPE_LINK,
	})
}

func devices() []broken {
	return []broken{
		{
			name: "VXLAN device missing", cause: follow.VXLANMissing,
			breakIt:  func(w *world) { w.must(w.nl(1).LinkDel(w.link(1, device))) },
			sentence: `request lost on node01 at flannel\.1: there is no flannel\.1 on node01.*`,
		},
		{
			name: "VXLAN device of the destination missing", cause: follow.VXLANMissing,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkDel(w.link(2, device))) },
			sentence: `request lost on node02 at flannel\.1: there is no flannel\.1 on node02`,
		},
		{
			name: "VXLAN device down", cause: follow.VXLANDown,
			breakIt:  func(w *world) { w.must(w.nl(1).LinkSetDown(w.link(1, device))) },
			sentence: `request lost on node01 at flannel\.1: flannel\.1 is down, and its routes are gone.*`,
		},
		{
			name: "VXLAN device of the destination down", cause: follow.VXLANDown,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkSetDown(w.link(2, device))) },
			sentence: `request lost on node02 at flannel\.1: flannel\.1 is down`,
		},
		{
			name: "bridge down", cause: follow.BridgeDown,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkSetDown(w.link(2, bridge))) },
			sentence: `request lost on node02 at cni0: cni0 is down, and its routes are gone.*`,
		},
		{
			name: "bridge missing", cause: follow.BridgeMissing,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkDel(w.link(2, bridge))) },
			sentence: `request lost on node02 at cni0: there is no cni0 on node02.*`,
		},
		{
			name: "bridge of the source missing", cause: follow.BridgeMissing,
			breakIt:  func(w *world) { w.must(w.nl(1).LinkDel(w.link(1, bridge))) },
			sentence: `request lost on node01 at cni0: there is no cni0 on node01` + gaveUp,
		},
	}
}

func tunnels() []broken {
	resident := func(w *world, n, peer int, mac net.HardwareAddr) {
		entry := w.neighbour(n, peer)
		entry.HardwareAddr = mac
		w.must(w.nl(n).NeighSet(entry))
	}
	stranger := net.HardwareAddr{10, 9, 9, 9, 9, 9}
	return []broken{
		{
			name: "neighbour missing for the request", cause: follow.NeighbourUnresolved,
			breakIt: func(w *world) { w.must(w.nl(1).NeighDel(w.neighbour(1, 2))) },
			sentence: `request lost on node01 at flannel\.1: neighbour 172\.16\.2\.0 is ` + asked +
				`; the lease of 172\.16\.2\.0/24 says 0a:00:00:00:00:02` + gaveUp,
		},
		{
			name: "neighbour missing for the reply", cause: follow.NeighbourUnresolved, path: reverse,
			breakIt: func(w *world) { w.must(w.nl(1).NeighDel(w.neighbour(1, 2))) },
			sentence: `reply lost on node01 at flannel\.1: neighbour 172\.16\.2\.0 is ` + asked +
				`; the lease of 172\.16\.2\.0/24 says 0a:00:00:00:00:02` + gaveUp,
		},
		{
			name: "neighbour with a wrong MAC", cause: follow.NeighbourWrongMAC,
			breakIt: func(w *world) { resident(w, 1, 2, stranger) },
			sentence: `request lost on node01 at flannel\.1: it is sent to 0a:09:09:09:09:09; the lease of ` +
				`172\.16\.2\.0/24 says 0a:00:00:00:00:02`,
		},
		{
			name: "neighbour and FDB with a wrong MAC", cause: follow.NeighbourWrongMAC,
			breakIt: func(w *world) {
				resident(w, 1, 2, stranger)
				entry := w.fdb(1, 2)
				entry.HardwareAddr = stranger
				w.must(w.nl(1).NeighSet(entry))
			},
			sentence: `request lost on node02 at flannel\.1: node01 sends to 0a:09:09:09:09:09, but flannel\.1 of ` +
				`node02 has the MAC 0a:00:00:00:00:02; the lease of 172\.16\.2\.0/24 says 0a:00:00:00:00:02`,
		},
		{
			name: "MAC of the destination's device changed", cause: follow.VTEPMACChanged,
			breakIt: func(w *world) { w.must(w.nl(2).LinkSetHardwareAddr(w.link(2, device), stranger)) },
			sentence: `request lost on node02 at flannel\.1: node01 sends to 0a:00:00:00:00:02, which node02 has ` +
				`published, but its flannel\.1 has the MAC 0a:09:09:09:09:09`,
		},
		{
			name: "FDB entry missing", cause: follow.FDBMissing,
			breakIt: func(w *world) { w.must(w.nl(1).NeighDel(w.fdb(1, 2))) },
			sentence: `request lost on node01 at flannel\.1: no FDB entry for 0a:00:00:00:00:02; the lease of ` +
				`172\.16\.2\.0/24 says 192\.168\.200\.202`,
		},
		{
			name: "FDB entry missing for the reply", cause: follow.FDBMissing, path: reverse,
			breakIt: func(w *world) { w.must(w.nl(1).NeighDel(w.fdb(1, 2))) },
			sentence: `reply lost on node01 at flannel\.1: no FDB entry for 0a:00:00:00:00:02; the lease of ` +
				`172\.16\.2\.0/24 says 192\.168\.200\.202`,
		},
		{
			name: "FDB entry to an address that is no node's", cause: follow.FDBWrongAddress,
			breakIt: func(w *world) { w.redirect(1, 2, net.IP{192, 168, 200, 250}) },
			sentence: `request lost on node01 at flannel\.1: the FDB entry for 0a:00:00:00:00:02 says ` +
				`192\.168\.200\.250, which is no node's address; the lease of 172\.16\.2\.0/24 says ` +
				`192\.168\.200\.202` + gaveUp,
		},
		{
			name:    "FDB entry to a former owner",
			cause:   follow.StaleOwner,
			breakIt: func(w *world) { w.redirect(1, 2, w.uplink(3).AsSlice()) },
			sentence: `request lost on node01 at flannel\.1: sent to 192\.168\.200\.203 \(node03\), which no ` +
				`longer owns 172\.16\.2\.0/24; the lease of 172\.16\.2\.0/24 says 192\.168\.200\.202`,
		},
		{
			name: "subnet given to another node", cause: follow.StaleOwner,
			breakIt: func(w *world) {
				w.redirect(1, 2, w.uplink(3).AsSlice())
				w.given = map[int]int{2: 3}
			},
			sentence: `request lost on node01 at flannel\.1: sent to 192\.168\.200\.203 \(node03\), as the lease ` +
				`of 172\.16\.2\.0/24 says; 172\.16\.2\.2 is on node02, which no longer owns it`,
		},
		{
			name: "VNI mismatch", cause: follow.VNIMismatch,
			breakIt:  func(w *world) { w.another(2, 7, 8472) },
			sentence: `request lost on node02 at flannel\.1: node01 sends with VNI 1, and flannel\.1 has 7`,
		},
		{
			name: "port mismatch", cause: follow.PortMismatch,
			breakIt: func(w *world) { w.another(2, 1, 4789) },
			sentence: `request lost on node02 at flannel\.1: node01 sends to UDP port 8472, and flannel\.1 listens ` +
				`on 4789`,
		},
	}
}

// redirect points node n's forwarding entry for a peer elsewhere.
func (w *world) redirect(n, peer int, to net.IP) {
	entry := w.fdb(n, peer)
	entry.IP = to
	w.must(w.nl(n).NeighSet(entry))
}

// another gives node n a VXLAN device of another make.
func (w *world) another(n, vni, port int) {
	w.must(w.nl(n).LinkDel(w.link(n, device)))
	w.addDevice(n, vni, port)
	w.addPeers(n)
}

func underlays() []broken {
	return []broken{
		{
			name: "uplink down", cause: follow.UplinkDown,
			breakIt:  func(w *world) { w.must(w.nl(1).LinkSetDown(w.link(1, node.Uplink))) },
			sentence: `request lost on node01 at eth0: eth0 is down, and its routes are gone.*`,
		},
		{
			name: "uplink of the destination down", cause: follow.UplinkDown,
			breakIt:  func(w *world) { w.must(w.nl(2).LinkSetDown(w.link(2, node.Uplink))) },
			sentence: `request lost on node02 at eth0: eth0 of node02 is down.*`,
		},
		{
			name: "cable pulled", cause: follow.UplinkNoCarrier,
			breakIt:  func(w *world) { w.must(w.fab.SetPort("node01", false)) },
			sentence: `request lost on node01 at eth0: eth0 has no carrier: its cable is pulled.*`,
		},
		{
			name: "cut between nodes that never met", cause: follow.UnderlayCut,
			breakIt: func(w *world) { w.must(w.fab.Cut("node01", "node02")) },
			sentence: `request lost on switch at node01: the switch drops everything from node01 to node02 \(rule ` +
				`"iifname \\"node01\\" oifname \\"node02\\" drop" in chain forward\)` + gaveUp,
		},
		{
			name: "cut between nodes that talked", cause: follow.UnderlayCut,
			breakIt: func(w *world) {
				w.talked(1, 2)
				w.must(w.fab.Cut("node01", "node02"))
			},
			sentence: `request dropped on switch by rule "iifname \\"node01\\" oifname \\"node02\\" drop" ` +
				`\(handle \d+\) in chain forward of table bridge drops`,
		},
		{
			name: "address of the destination's uplink gone", cause: follow.UnderlayUnanswered,
			breakIt: func(w *world) {
				w.must(w.nl(2).AddrDel(w.link(2, node.Uplink), &netlink.Addr{IPNet: ipnet(w.underlay(2))}))
			},
			sentence: `request lost on node01 at eth0: neighbour 192\.168\.200\.202 is ` + asked + `.*`,
		},
		{
			name:  "no route on the underlay",
			cause: follow.UnderlayNoRoute,
			breakIt: func(w *world) {
				w.must(w.nl(1).AddrDel(w.link(1, node.Uplink), &netlink.Addr{IPNet: ipnet(w.underlay(1))}))
			},
			sentence: `request lost on node01 at flannel\.1: no route on node01 to 192\.168\.200\.202, the other ` +
				`end of the tunnel.*`,
		},
	}
}

func rules() []broken {
	drop := &expr.Verdict{Kind: expr.VerdictDrop}
	forward, input, output := nftables.ChainHookForward, nftables.ChainHookInput, nftables.ChainHookOutput
	accept := nftables.ChainPolicyAccept
	return []broken{
		{
			name: "dropped on the source", cause: follow.RuleDropped,
			breakIt: func(w *world) { w.rule(1, forward, accept, append(w.to(2), drop)...) },
			sentence: `request dropped on node01 by rule "ip daddr 172\.16\.2\.0/24 drop" \(handle \d+\) in chain ` +
				`FORWARD of table ip filter`,
		},
		{
			name: "dropped on the destination", cause: follow.RuleDropped,
			breakIt: func(w *world) { w.rule(2, forward, accept, append(w.to(2), drop)...) },
			sentence: `request dropped on node02 by rule "ip daddr 172\.16\.2\.0/24 drop" \(handle \d+\) in chain ` +
				`FORWARD of table ip filter`,
		},
		{
			name: "reply dropped on the destination", cause: follow.RuleDropped,
			breakIt: func(w *world) { w.rule(2, forward, accept, append(w.to(1), drop)...) },
			sentence: `reply dropped on node02 by rule "ip daddr 172\.16\.1\.0/24 drop" \(handle \d+\) in chain ` +
				`FORWARD of table ip filter`,
		},
		{
			name: "dropped by policy", cause: follow.RuleDropped,
			breakIt:  func(w *world) { w.rule(1, forward, nftables.ChainPolicyDrop) },
			sentence: `request dropped on node01 by the policy in chain FORWARD of table ip filter`,
		},
		{
			name: "VXLAN itself dropped", cause: follow.RuleDropped,
			breakIt: func(w *world) {
				w.rule(2, input, accept, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}}, drop)
			},
			sentence: `request dropped on node02 by rule "meta l4proto udp drop" \(handle \d+\) in chain INPUT of ` +
				`table ip filter`,
		},
		{
			name: "VXLAN itself dropped for the reply", cause: follow.RuleDropped,
			breakIt: func(w *world) {
				w.rule(2, output, accept, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}}, drop)
			},
			sentence: `reply dropped on node02 by rule "meta l4proto udp drop" \(handle \d+\) in chain OUTPUT of ` +
				`table ip filter`,
		},
		{
			name:  "rejected",
			cause: follow.RuleRejected,
			breakIt: func(w *world) {
				w.rule(
					1,
					forward,
					accept,
					append(w.to(2), &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 10})...)
			},
			sentence: `request rejected on node01 by rule "ip daddr 172\.16\.2\.0/24 reject" \(handle \d+\) in ` +
				`chain ` +
				`FORWARD of table ip filter; ICMP host prohibited \(type 3 code 10\) from node01 \(172\.16\.1\.1\)`,
		},
		{
			name:    "dropped in the pod",
			cause:   follow.RuleDropped,
			breakIt: func(w *world) { w.ruleIn(w.pods[1], input, accept, append(w.to(2), drop)...) },
			sentence: `request dropped on pod2 by rule "ip daddr 172\.16\.2\.0/24 drop" \(handle \d+\) in chain ` +
				`INPUT of table ip filter`,
		},
		{
			name: "forwarding off", cause: follow.ForwardingOff,
			breakIt:  func(w *world) { w.must(w.nodes[1].Sysctl("net.ipv4.ip_forward", "0")) },
			sentence: `request lost on node02 at flannel\.1: node02 does not forward \(net\.ipv4\.ip_forward = 0\)`,
		},
		{
			name:  "reverse path filter",
			cause: follow.RPFilter,
			breakIt: func(w *world) {
				w.must(w.nodes[1].Sysctl("net.ipv4.conf.all.rp_filter", "1"))
				w.must(w.nl(2).RouteReplace(&netlink.Route{
					Dst: ipnet(w.subnet(1)), Gw: w.uplink(1).AsSlice(),
					LinkIndex: w.link(2, node.Uplink).Attrs().Index,
				}))
			},
			sentence: `request lost on node02 at flannel\.1: reverse path filtering refuses the source ` +
				`172\.16\.1\.2: ` +
				`the way back to it is 172\.16\.1\.0/24 via 192\.168\.200\.201 dev eth0, not by flannel\.1` + gaveUp,
		},
		{
			name: "source rewritten", cause: follow.SourceRewritten,
			breakIt: func(w *world) {
				w.rule(1, nftables.ChainHookPostrouting, accept, append(w.to(2),
					&expr.Immediate{Register: 1, Data: w.pod(3).AsSlice()},
					&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})...)
			},
			sentence: `reply lost on node02 at eth0: it goes to 172\.16\.3\.2 and not to 172\.16\.1\.2, because ` +
				`node01 rewrote the source of the request \(rule "ip daddr 172\.16\.2\.0/24 snat" in chain ` +
				`POSTROUTING of table ip filter\)` + gaveUp,
		},
	}
}

// talked makes two nodes know each other on the underlay.
func (w *world) talked(a, b int) {
	trace, err := follow.Follow(w.tb.Context(), w.path(a, b))
	w.must(err)
	if trace.Cause != follow.Delivered {
		w.tb.Fatal(trace.Sentence)
	}
}
