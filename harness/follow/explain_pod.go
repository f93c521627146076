package follow

import (
	"net/netip"

	"github.com/nemesh/nemesh/harness/observe"
)

// fromPod asks why a pod did not send.
func (l leg) fromPod() Verdict {
	pod, st := l.src, l.o.State[l.src.Name]
	link, ok := st.Link(pod.Device)
	switch {
	case !ok:
		return l.lost(PodLinkMissing, pod.Name, pod.Device, "%s has no %s", pod.Name, pod.Device)
	case !link.Up:
		return l.lost(PodLinkDown, pod.Name, pod.Device, "%s of %s is down", pod.Device, pod.Name)
	}
	if l.direction == Reply {
		if v, ok := l.notAnswered(); ok {
			return v
		}
	}
	route, found := st.Lookup(l.dstAddr)
	if c, ok := refusing[route.Type]; ok {
		return l.lost(c, pod.Name, pod.Device, "%s has the route %q", pod.Name, words(route))
	}
	if !found {
		return l.lost(PodNoRoute, pod.Name, pod.Device, "%s has no route to %s, and no default route", pod.Name,
			l.dstAddr)
	}
	if over := l.o.Size - link.MTU; over > 0 {
		return l.lost(PacketTooBig, pod.Name, pod.Device, "larger than the path's MTU by %d bytes (%s takes %d)",
			over, pod.Device, link.MTU)
	}
	next := l.dstAddr
	if route.Via.IsValid() {
		next = route.Via
	}
	if neighbour, known := st.Neighbour(route.Device, next); known && resolved(neighbour) {
		return l.unexplained(Sighting{})
	}
	if v, ok := l.podAttached(pod, l.from); ok {
		return v
	}
	if route.Via.IsValid() && !l.o.State[l.from.Name].Holds(next) {
		return l.lost(GatewayMissing, l.from.Name, l.from.Bridge,
			"%s does not have the address %s, which is the gateway of %s%s", l.from.Bridge, next, pod.Name,
			l.unanswered(pod.Name, pod.Device, next))
	}
	return l.lost(PodUnanswered, pod.Name, pod.Device, "nobody answers for %s%s", next,
		l.unanswered(pod.Name, pod.Device, next))
}

// notAnswered asks why a pod that got the request did not reply.
func (l leg) notAnswered() (Verdict, bool) {
	pod, st := l.src, l.o.State[l.src.Name]
	request, _ := l.o.leg(Request).arrival()
	switch {
	case st.Sysctl("icmp_echo_ignore_all") != 0:
		return l.lost(EchoRefused, pod.Name, pod.Device,
			"%s got the request and ignores echoes (net.ipv4.icmp_echo_ignore_all = 1)", pod.Name), true
	case !st.Holds(pod.Addr):
		return l.addressMissing(pod), true
	}
	return l.refused(pod.Name, pod.Device, request.Src)
}

func (l leg) addressMissing(pod End) Verdict {
	return l.lost(
		PodAddressMissing,
		pod.Name,
		pod.Device,
		"%s does not have the address %s",
		pod.Name,
		pod.Addr,
	)
}

// podAttached asks whether a pod's link leads to its node's bridge.
func (l leg) podAttached(pod End, n Node) (Verdict, bool) {
	veth, ok := l.o.veth(pod)
	if !ok {
		return l.lost(PodLinkMissing, n.Name, n.Bridge, "there is no veth of %s on %s", pod.Name, n.Name), true
	}
	bridge, there := l.o.State[n.Name].Link(n.Bridge)
	switch {
	case !there:
		return l.lost(BridgeMissing, n.Name, n.Bridge, "there is no %s on %s", n.Bridge, n.Name), true
	case !veth.Up:
		return l.lost(VethDown, n.Name, veth.Name, "%s, the veth of %s, is down", veth.Name, pod.Name), true
	case veth.Master != bridge.Index:
		return l.lost(VethDetached, n.Name, veth.Name, "%s, the veth of %s, is not on %s", veth.Name, pod.Name,
			n.Bridge), true
	case !bridge.Up:
		return l.lost(BridgeDown, n.Name, n.Bridge, "%s is down", n.Bridge), true
	}
	return Verdict{}, false
}

// beforeBridge asks why what a pod sent did not come to its node's bridge.
func (l leg) beforeBridge(pod End, n Node, before Sighting) Verdict {
	if v, ok := l.podAttached(pod, n); ok {
		return v
	}
	bridge, _ := l.o.State[n.Name].Link(n.Bridge)
	if before.DstMAC != "" && before.DstMAC != bridge.MAC {
		return l.lost(GatewayMissing, n.Name, n.Bridge, "%s sends to %s, and %s has %s", pod.Name, before.DstMAC,
			n.Bridge, bridge.MAC)
	}
	return l.unexplained(before)
}

// podSilent asks why a pod does not answer for its address on its node's bridge.
func (l leg) podSilent(n Node, next netip.Addr, state string) Verdict {
	if v, ok := l.podReachable(n); ok {
		return v
	}
	asked := l.unanswered(n.Name, n.Bridge, next)
	if !l.o.State[l.dst.Name].Holds(l.dst.Addr) {
		v := l.addressMissing(l.dst)
		v.Node, v.Device = n.Name, n.Bridge
		v.Sentence = l.lost("", n.Name, n.Bridge, "neighbour %s %s%s: %s does not have that address", next, state,
			asked, l.dst.Name).Sentence
		return v
	}
	return l.lost(PodUnanswered, n.Name, n.Bridge, "neighbour %s %s%s", next, state, asked)
}

// podReachable asks whether the links to a pod are fit.
func (l leg) podReachable(n Node) (Verdict, bool) {
	link, ok := l.o.State[l.dst.Name].Link(l.dst.Device)
	if ok && !link.Up {
		return l.lost(PodLinkDown, l.dst.Name, l.dst.Device, "%s of %s is down", l.dst.Device, l.dst.Name), true
	}
	return l.podAttached(l.dst, n)
}

// toPod asks why what left the bridge did not come to the pod.
func (l leg) toPod(before Sighting) Verdict {
	if v, ok := l.podReachable(l.to); ok {
		return v
	}
	veth, _ := l.o.veth(l.dst)
	link, _ := l.o.State[l.dst.Name].Link(l.dst.Device)
	for _, at := range []struct {
		place string
		observe.Link
	}{{l.to.Name, veth}, {l.dst.Name, link}} {
		if over := before.Length - at.MTU; over > 0 {
			return l.lost(MTUBlackHole, at.place, at.Name, "larger than the path's MTU by %d bytes (%s takes %d), "+
				"and dropped without a word", over, at.Name, at.MTU)
		}
	}
	if before.DstMAC != "" && before.DstMAC != link.MAC {
		return l.lost(PodUnanswered, l.to.Name, l.to.Bridge, "it was sent to %s, and %s of %s has %s",
			before.DstMAC, l.dst.Device, l.dst.Name, link.MAC)
	}
	return l.unexplained(before)
}

// afterArrival asks why a packet that came to its end was not taken there.
func (l leg) afterArrival(last stage) Verdict {
	arrived, _ := l.at(last)
	if arrived.OtherHost && last.place == l.to.Name {
		return l.notForUs(l.to, arrived)
	}
	if arrived.OtherHost {
		link, _ := l.o.State[last.place].Link(last.device)
		return l.lost(PodUnanswered, last.place, last.device, "it came with the MAC %s, and %s has %s",
			arrived.DstMAC, last.device, link.MAC)
	}
	if v, ok := l.refused(last.place, last.device, arrived.Src); ok {
		return v
	}
	return l.unexplained(arrived)
}
