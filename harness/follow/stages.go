package follow

import (
	"net/netip"

	"github.com/nemesh/nemesh/harness/observe"
)

// kind is what a stage of the way is, and so who is asked when the packet was not seen there.
type kind int

const (
	podOut kind = iota
	vethIn
	bridgeIn
	tunnelOut
	uplinkOut
	portIn
	portOut
	uplinkIn
	tunnelIn
	bridgeOut
	vethOut
	podIn
)

// stage is a place where the packet should be seen.
type stage struct {
	kind
	place, device string
	out           bool
}

// leg is one direction of the echo.
type leg struct {
	o         *Observation
	direction string
	src, dst  End
	// from and to are the nodes of both.
	from, to Node
	// dstAddr is where the packet is sent to: for a reply, whatever source the request arrived with.
	dstAddr netip.Addr
	seen    []Sighting
}

func (o *Observation) node(name string) Node {
	for _, n := range o.Nodes {
		if n.Name == name {
			return n
		}
	}
	return Node{Name: name}
}

// leg picks out one direction.
func (o *Observation) leg(direction string) leg {
	l := leg{o: o, direction: direction, src: o.From, dst: o.To, dstAddr: o.To.Addr}
	if direction == Reply {
		l.src, l.dst, l.dstAddr = o.To, o.From, o.From.Addr
		if s, ok := o.leg(Request).arrival(); ok {
			l.dstAddr = s.Src
		}
	}
	l.from, l.to = o.node(l.src.Node), o.node(l.dst.Node)
	for _, s := range o.Sightings {
		if s.Direction == direction {
			l.seen = append(l.seen, s)
		}
	}
	return l
}

// at returns the first sighting at a stage. On the underlay only what is in the tunnel is on its way; what
// goes there bare has been routed elsewhere.
func (l leg) at(s stage) (Sighting, bool) {
	inside := s.kind >= uplinkOut && s.kind <= uplinkIn && l.tunnelled()
	for _, have := range l.seen {
		if have.Place == s.place && have.Device == s.device && have.Out == s.out &&
			(!inside || have.Tunnel != nil) {
			return have, true
		}
	}
	return Sighting{}, false
}

// arrival returns the sighting at the last stage, addressed to whoever is there.
func (l leg) arrival() (Sighting, bool) {
	stages := l.stages()
	s, ok := l.at(stages[len(stages)-1])
	return s, ok && !s.OtherHost
}

// tunnelled reports whether the packet should go through the VXLAN device: not when the overlay has none,
// nor to an address of the underlay.
func (l leg) tunnelled() bool {
	if l.from.Device == "" {
		return false
	}
	for _, n := range l.o.Nodes {
		if n.Addr == l.dstAddr {
			return false
		}
	}
	return true
}

// veth returns the node's end of a pod's link.
func (o *Observation) veth(e End) (observe.Link, bool) {
	link, ok := o.State[e.Name].Link(e.Device)
	if !ok || link.Peer == 0 {
		return observe.Link{}, false
	}
	return o.State[e.Node].LinkAt(link.Peer)
}

// vethName is what the node's end of a pod's link is called; the pod's name if it is not there.
func (o *Observation) vethName(e End) string {
	if l, ok := o.veth(e); ok {
		return l.Name
	}
	return "veth of " + e.Name
}

// stages lists the stages that the packet should pass.
func (l leg) stages() []stage {
	var stages []stage
	add := func(k kind, place, device string, out bool) {
		stages = append(stages, stage{k, place, device, out})
	}
	same := l.from.Name == l.to.Name
	if l.src.IsPod() {
		add(podOut, l.src.Name, l.src.Device, true)
		add(vethIn, l.from.Name, l.o.vethName(l.src), false)
		if !same || !l.dst.IsPod() {
			add(bridgeIn, l.from.Name, l.from.Bridge, false)
		}
	}
	if !same {
		if l.tunnelled() {
			add(tunnelOut, l.from.Name, l.from.Device, true)
		}
		add(uplinkOut, l.from.Name, l.from.Uplink, true)
		add(portIn, SwitchName, l.from.Port, false)
		add(portOut, SwitchName, l.to.Port, true)
		add(uplinkIn, l.to.Name, l.to.Uplink, false)
		if l.tunnelled() {
			add(tunnelIn, l.to.Name, l.to.Device, false)
		}
	}
	if l.dst.IsPod() {
		if !same || !l.src.IsPod() {
			add(bridgeOut, l.to.Name, l.to.Bridge, true)
		}
		add(vethOut, l.to.Name, l.o.vethName(l.dst), true)
		add(podIn, l.dst.Name, l.dst.Device, false)
	}
	return stages
}

// reached returns the index of the last stage at which the packet was seen; -1 for none.
func (l leg) reached(stages []stage) int {
	for i := len(stages) - 1; i >= 0; i-- {
		if _, ok := l.at(stages[i]); ok {
			return i
		}
	}
	return -1
}

// Hops lists the places of the expected way, of the request and, once it has arrived, of the reply.
func (o *Observation) Hops() []Hop {
	var hops []Hop
	for _, direction := range []string{Request, Reply} {
		l := o.leg(direction)
		if direction == Reply && len(l.seen) == 0 {
			if _, arrived := o.leg(Request).arrival(); !arrived {
				break
			}
		}
		for _, s := range l.stages() {
			seen, ok := l.at(s)
			hops = append(hops, Hop{
				Node: s.place, Device: s.device, Direction: direction, Out: s.out, Seen: ok,
				At: seen.At,
			})
		}
	}
	return hops
}
