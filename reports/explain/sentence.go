package explain

import (
	"fmt"
	"net/netip"
	"strings"
)

// fate is how an end is judged.
func (a *analysis) fate(e *end) rank {
	switch e.kind {
	case endDropped:
		return rankDropped
	case endUnrouted, endLoop:
		return rankLost
	case endSent:
		if e.next >= 0 && a.follow.hosts[e.next].traced {
			return rankLost
		}
		if len(a.others(e.leg.host)) > 0 {
			return rankGone
		}
		return rankOneWay
	case endCame:
		return rankSilent
	case endSeen, endNone:
		return rankOneWay
	default:
		return rankFine
	}
}

// others are the machines, besides one, whose traces were given.
func (a *analysis) others(host int32) []string {
	var names []string
	for i := range a.follow.hosts {
		if int32(i) != host && a.follow.hosts[i].traced {
			names = append(names, a.follow.hosts[i].name)
		}
	}
	return names
}

// went says where a packet's way ends, as what follows "the request".
func (a *analysis) went(e *end, answered bool) string {
	const was = "was "
	l := &e.leg
	host := a.follow.hosts[l.host].name
	switch e.kind {
	case endDropped:
		return was + "dropped on " + host + " by " + e.rule
	case endLoop:
		return fmt.Sprintf("went in a circle and was last seen on %s (%d passages)", host, e.hops)
	case endUnrouted:
		return fmt.Sprintf("came in on %s by %s and went no further: no route, a failed reverse-path check, or "+
			"forwarding is off", host, l.in)
	case endSent:
		return a.sent(e, was)
	case endPod:
		if answered {
			return was + "delivered to the pod behind " + l.out + " on " + host
		}
		return was + "handed to the pods' side of " + host + " by " + l.out
	case endHost:
		return was + "delivered to " + host + " itself"
	case endCame:
		return "came in on " + host + " by " + l.in + " and was not captured leaving"
	case endSeen:
		if e.hops > 1 {
			return was + "last seen on " + seenOn(l) + host + inTunnel(l)
		}
		return was + "seen on " + seenOn(l) + host + inTunnel(l)
	default:
		return was + "never seen"
	}
}

func seenOn(l *leg) string {
	if dev := l.in + l.seen; dev != "" && (l.in == "" || l.seen == "") {
		return dev + " of "
	}
	if l.in != "" {
		return l.in + " of "
	}
	return ""
}

func inTunnel(l *leg) string {
	if l.tunnel == nil {
		return ""
	}
	return " (VXLAN from " + l.tunnel.outer.Src.String() + " to " + l.tunnel.outer.Dst.String() + ")"
}

func (a *analysis) sent(e *end, was string) string {
	l := &e.leg
	host := a.follow.hosts[l.host].name
	text := "left " + host + " by " + l.out
	if l.in != "" {
		text = was + "routed from " + l.in + " to " + l.out + " on " + host
	}
	if l.tunnel != nil && l.tunnel.in == "" {
		text += " (VXLAN to " + l.tunnel.outer.Dst.String() + ")"
	}
	switch others := a.others(l.host); {
	case e.next >= 0 && a.follow.hosts[e.next].traced:
		text += " and never seen on " + a.follow.hosts[e.next].name
	case e.next >= 0:
		text += ", and there is no trace of " + a.follow.hosts[e.next].name
	case len(others) == 1:
		text += " and not seen on " + others[0]
	case len(others) > 1:
		text += " and not seen on any other machine"
	default:
		text += ", and there is no trace of another machine"
	}
	return text
}

// back says where a reply ended.
func (a *analysis) back(e *end) string {
	l := &e.leg
	host := a.follow.hosts[l.host].name
	switch e.kind {
	case endHost:
		return "its reply came back to " + host
	case endPod:
		return "its reply came back to the pod behind " + l.out + " on " + host
	}
	return "its reply " + a.went(e, true)
}

// why adds what the listings know of an end.
func (a *analysis) why(e *end, to netip.Addr) string {
	var reason string
	l := &e.leg
	switch e.kind {
	case endSent:
		if l.tunnel != nil && l.tunnel.in == "" && e.next >= 0 {
			if real, ok := a.underlay[e.next]; ok && real != l.tunnel.outer.Dst {
				return fmt.Sprintf("; %s is at %s", a.follow.hosts[e.next].name, real)
			}
		}
		reason = a.cause(l.host, to, l.out)
	case endUnrouted:
		reason = a.cause(l.host, to, "")
	case endCame:
		// The machine's own addresses are in no listing of routes: what has no route there may be one.
		if m := &a.follow.hosts[l.host].machine; len(m.routes) > 0 {
			if _, ok := m.lookup(to); !ok {
				return ""
			}
		}
		reason = a.cause(l.host, to, "")
	}
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// path renders a packet's way in one line.
func (a *analysis) path(what string, p *packet) string {
	if p == nil {
		return ""
	}
	var parts []string
	for _, l := range a.follow.trail(p) {
		var way string
		switch {
		case l.local:
			way = "→ " + l.out
		case l.delivered:
			way = l.in + " → itself"
		case l.in != "" && l.out != "":
			way = l.in + " → " + l.out
		case l.out != "":
			way = "→ " + l.out
		case l.in != "":
			way = "in by " + l.in
		case l.seen != "":
			way = "on " + l.seen
		default:
			way = "captured"
		}
		if l.port != "" {
			way = l.port + ", " + way
		}
		if l.tunnel != nil {
			way += fmt.Sprintf(" (VXLAN %d, %s → %s)", l.tunnel.outer.VNI, l.tunnel.outer.Src, l.tunnel.outer.Dst)
		}
		parts = append(parts, a.follow.hosts[l.host].name+": "+way)
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%-8s %s", what, strings.Join(parts, "  |  "))
}

// tally groups what ended alike.
type tally struct {
	text  string
	rank  rank
	count int
	// first are the packets of the first one, for the path.
	first [2]*packet
	// shortest and longest are lengths in bytes of the packets that decided.
	shortest, longest int32
	seq               uint16
}

func (t *tally) add(length int32) {
	t.count++
	if length <= 0 {
		return
	}
	if t.shortest == 0 || length < t.shortest {
		t.shortest = length
	}
	t.longest = max(t.longest, length)
}
