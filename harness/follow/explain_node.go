package follow

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nemesh/nemesh/harness/observe"
)

// encapsulation is by how much VXLAN makes a packet longer: IPv4, UDP, VXLAN and the inner Ethernet header.
const encapsulation = 20 + 8 + 8 + 14

// routed asks a node why it did not send on, by a device, what came in by another one ("" for the node's own
// packet).
func (l leg) routed(n Node, in, want string, before Sighting) Verdict {
	st := l.o.State[n.Name]
	if before.OtherHost {
		return l.notForUs(n, before)
	}
	if v, ok := l.deviceFit(n, want); ok {
		return v
	}
	if in != "" {
		if v, ok := l.mayForward(n, in); ok {
			return v
		}
	}
	route, found := st.Lookup(l.dstAddr)
	if v, ok := l.routeLeads(n, want, route, found); ok {
		return v
	}
	device, _ := st.Link(want)
	if over := max(before.Length, l.o.Size) - device.MTU; over > 0 && l.o.Size > 0 {
		return l.lost(
			PacketTooBig,
			n.Name,
			want,
			"larger than the path's MTU by %d bytes (%s takes %d)",
			over,
			want,
			device.MTU,
		)
	}
	next := l.dstAddr
	if route.Via.IsValid() {
		next = route.Via
	}
	neighbour, known := st.Neighbour(want, next)
	if known && resolved(neighbour) {
		return l.unexplained(before)
	}
	state := "is not in the table"
	if known {
		state = "is " + neighbour.State
	}
	switch want {
	case n.Bridge:
		return l.podSilent(n, next, state)
	case n.Uplink:
		return l.peerSilent(n, next, state)
	}
	return l.lost(NeighbourUnresolved, n.Name, want, "neighbour %s %s%s%s", next, state,
		l.unanswered(n.Name, want, next), l.leaseSaysMAC(next))
}

// notForUs says that a frame arrived whose MAC is not that of the device.
func (l leg) notForUs(n Node, before Sighting) Verdict {
	device, _ := l.o.State[n.Name].Link(before.Device)
	if before.Device != n.Device {
		return l.lost(Unexplained, n.Name, before.Device, "it was sent to %s, and %s has %s", before.DstMAC,
			before.Device, device.MAC)
	}
	have, known := l.lease(l.dstAddr)
	if known && have.VtepMAC == before.DstMAC {
		return l.lost(VTEPMACChanged, n.Name, n.Device,
			"%s sends to %s, which %s has published, but its %s has the MAC %s", l.from.Name, before.DstMAC, n.Name,
			n.Device, device.MAC)
	}
	return l.lost(NeighbourWrongMAC, n.Name, n.Device,
		"%s sends to %s, but %s of %s has the MAC %s%s", l.from.Name, before.DstMAC, n.Device, n.Name, device.MAC,
		l.leaseSaysMAC(l.dstAddr))
}

// deviceFit looks for the device that the packet should leave by.
func (l leg) deviceFit(n Node, want string) (Verdict, bool) {
	missing, down := VXLANMissing, VXLANDown
	switch want {
	case n.Bridge:
		missing, down = BridgeMissing, BridgeDown
	case n.Uplink:
		missing, down = UplinkDown, UplinkDown
	}
	link, ok := l.o.State[n.Name].Link(want)
	switch {
	case !ok:
		return l.lost(missing, n.Name, want, "there is no %s on %s", want, n.Name), true
	case !link.Up:
		return l.lost(down, n.Name, want, "%s is down, and its routes are gone", want), true
	case !link.Carrier && want == n.Uplink:
		return l.lost(UplinkNoCarrier, n.Name, want, "%s has no carrier: its cable is pulled", want), true
	}
	return Verdict{}, false
}

// mayForward asks whether the node forwards at all, and this source.
func (l leg) mayForward(n Node, in string) (Verdict, bool) {
	st := l.o.State[n.Name]
	for _, key := range []string{"ip_forward", "conf/" + in + "/forwarding"} {
		if st.Sysctls[key] == "0" {
			return l.lost(ForwardingOff, n.Name, in, "%s does not forward (net.ipv4.%s = 0)", n.Name,
				strings.ReplaceAll(key, "/", ".")), true
		}
	}
	src := l.src.Addr
	if s, ok := l.at(stage{place: n.Name, device: in}); ok {
		src = s.Src
	}
	return l.refused(n.Name, in, src)
}

// refused asks whether reverse path filtering has dropped what came in.
func (l leg) refused(place, in string, src netip.Addr) (Verdict, bool) {
	back, refused := refusedByRPFilter(l.o.State[place], in, src)
	if !refused {
		return Verdict{}, false
	}
	way := "there is no way back to it"
	if back.Dst.IsValid() {
		way = fmt.Sprintf("the way back to it is %s, not by %s", words(back), in)
	}
	return l.lost(RPFilter, place, in, "reverse path filtering refuses the source %s: %s", src, way), true
}

// refusing are the types of a route that leads nowhere (ip-route(8)).
var refusing = map[string]Cause{
	"blackhole": BlackholeRoute, "unreachable": UnreachableRoute, "prohibit": ProhibitRoute,
}

// routeLeads asks whether the route leads where it should.
func (l leg) routeLeads(n Node, want string, route observe.Route, found bool) (Verdict, bool) {
	subnet := l.subnet(l.dstAddr)
	if !found {
		return l.lost(NoRoute, n.Name, want, "no route on %s to %s", n.Name, subnet), true
	}
	if c, ok := refusing[route.Type]; ok {
		return l.lost(c, n.Name, want, "%s has the route %q", n.Name, words(route)), true
	}
	switch {
	case route.Device == want && route.Type == "unicast" && (route.Dst.Bits() > 0 || want == n.Uplink):
		return Verdict{}, false
	case route.Dst.Bits() == 0:
		return l.lost(NoRoute, n.Name, want, "no route on %s to %s: it takes %q", n.Name, subnet,
			words(route)), true
	case want == n.Bridge && route.Device == n.Device && n.Device != "":
		return l.ownSubnetTunnelled(route), true
	}
	return l.lost(WrongDevice, n.Name, want, "%s has the route %q, which does not lead to %s", n.Name,
		words(route), want), true
}

func (l leg) ownSubnetTunnelled(route observe.Route) Verdict {
	return l.lost(OwnSubnetTunnelled, l.to.Name, l.to.Device, "%s sends its own subnet into the tunnel (%q)",
		l.to.Name, words(route))
}

// encapsulated asks why a packet that went into the VXLAN device did not come out of the uplink.
func (l leg) encapsulated(before Sighting) Verdict {
	n, st := l.from, l.o.State[l.from.Name]
	if v, ok := l.deviceFit(n, n.Uplink); ok {
		return v
	}
	entry, ok := forwarding(st, n.Device, before.DstMAC)
	if !ok {
		lease, known := l.lease(l.dstAddr)
		if known && lease.VtepMAC != "" && lease.VtepMAC != before.DstMAC {
			return l.lost(NeighbourWrongMAC, n.Name, n.Device, "it is sent to %s%s", before.DstMAC,
				l.leaseSaysMAC(l.dstAddr))
		}
		return l.lost(FDBMissing, n.Name, n.Device, "no FDB entry for %s%s", before.DstMAC, l.leaseSays(l.dstAddr))
	}
	if entry.IP != l.to.Addr {
		return l.wrongAddress(before.DstMAC, entry.IP)
	}
	route, ok := st.Lookup(entry.IP)
	if !ok {
		return l.lost(
			UnderlayNoRoute,
			n.Name,
			n.Device,
			"no route on %s to %s, the other end of the tunnel",
			n.Name,
			entry.IP,
		)
	}
	next := entry.IP
	if route.Via.IsValid() {
		next = route.Via
	}
	neighbour, known := st.Neighbour(route.Device, next)
	if known && resolved(neighbour) {
		return l.unexplained(before)
	}
	state := "is not in the table"
	if known {
		state = "is " + neighbour.State
	}
	return l.peerSilent(n, next, state)
}

// peerSilent asks why nobody answers for an address on the underlay.
func (l leg) peerSilent(n Node, next netip.Addr, state string) Verdict {
	if v, ok := l.cut(); ok {
		return v
	}
	if v, ok := l.farUplink(); ok {
		return v
	}
	return l.lost(UnderlayUnanswered, n.Name, n.Uplink, "neighbour %s %s%s", next, state,
		l.unanswered(n.Name, n.Uplink, next))
}

// cut finds a rule of the switch that keeps the nodes of both ends from each other.
func (l leg) cut() (Verdict, bool) {
	for _, r := range l.o.State[SwitchName].Rules {
		if r.Family == "bridge" && strings.Contains(r.Text, "drop") &&
			strings.Contains(r.Text, `iifname "`+l.from.Port+`"`) &&
			strings.Contains(r.Text, `oifname "`+l.to.Port+`"`) {
			return l.lost(UnderlayCut, SwitchName, l.from.Port,
				"the switch drops everything from %s to %s (rule %q in chain %s)", l.from.Name, l.to.Name, r.Text,
				r.Chain), true
		}
	}
	return Verdict{}, false
}

// farUplink asks whether the other node is on the underlay at all.
func (l leg) farUplink() (Verdict, bool) {
	port, ok := l.o.State[SwitchName].Link(l.to.Port)
	if ok && !port.Up {
		return l.lost(UplinkNoCarrier, SwitchName, l.to.Port, "the port of %s on the switch is down",
			l.to.Name), true
	}
	uplink, there := l.o.State[l.to.Name].Link(l.to.Uplink)
	switch {
	case there && !uplink.Up:
		return l.lost(UplinkDown, l.to.Name, l.to.Uplink, "%s of %s is down", l.to.Uplink, l.to.Name), true
	case !there || !ok:
		return l.lost(UplinkDown, l.to.Name, l.to.Uplink, "%s of %s is not there", l.to.Uplink, l.to.Name), true
	}
	return Verdict{}, false
}

// onUnderlay asks why a packet that left the uplink did not come to the other node.
func (l leg) onUnderlay(s stage, before Sighting) Verdict {
	if v, ok := l.strayed(); ok {
		return v
	}
	if s.kind == portIn {
		port, ok := l.o.State[SwitchName].Link(l.from.Port)
		if !ok || !port.Up {
			return l.lost(UplinkNoCarrier, SwitchName, l.from.Port, "the port of %s on the switch is down",
				l.from.Name)
		}
		return l.unexplained(before)
	}
	if v, ok := l.cut(); ok {
		return v
	}
	if v, ok := l.farUplink(); ok {
		return v
	}
	length := before.Length
	if before.Tunnel != nil {
		length += encapsulation
	}
	for _, at := range []struct{ place, device string }{
		{SwitchName, l.to.Port}, {l.to.Name, l.to.Uplink},
	} {
		link, _ := l.o.State[at.place].Link(at.device)
		if over := length - link.MTU; over > 0 {
			return l.lost(MTUBlackHole, at.place, at.device, "larger than the path's MTU by %d bytes (%s takes %d), "+
				"and dropped without a word", over, at.device, link.MTU)
		}
	}
	return l.unexplained(before)
}

// strayed finds a packet to a pod that left by the default route: of an overlay without a tunnel, it looks
// on the uplink as if it were on its way.
func (l leg) strayed() (Verdict, bool) {
	if !l.dst.IsPod() || l.tunnelled() {
		return Verdict{}, false
	}
	route, found := l.o.State[l.from.Name].Lookup(l.dstAddr)
	if !found || route.Dst.Bits() > 0 {
		return Verdict{}, false
	}
	return l.lost(NoRoute, l.from.Name, l.from.Uplink, "no route on %s to %s: it takes %q", l.from.Name,
		l.subnet(l.dstAddr), route), true
}

// decapsulated asks why what came in by the uplink did not come out of the VXLAN device.
func (l leg) decapsulated(before Sighting) Verdict {
	n := l.to
	link, ok := l.o.State[n.Name].Link(n.Device)
	switch {
	case !ok:
		return l.lost(VXLANMissing, n.Name, n.Device, "there is no %s on %s", n.Device, n.Name)
	case !link.Up:
		return l.lost(VXLANDown, n.Name, n.Device, "%s is down", n.Device)
	case before.Tunnel == nil:
		return l.unexplained(before)
	case before.Tunnel.Port != link.Port:
		return l.lost(PortMismatch, n.Name, n.Device, "%s sends to UDP port %d, and %s listens on %d", l.from.Name,
			before.Tunnel.Port, n.Device, link.Port)
	case before.Tunnel.VNI != link.VNI:
		return l.lost(VNIMismatch, n.Name, n.Device, "%s sends with VNI %d, and %s has %d", l.from.Name,
			before.Tunnel.VNI, n.Device, link.VNI)
	}
	return l.unexplained(before)
}
