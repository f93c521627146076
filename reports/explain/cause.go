package explain

import (
	"fmt"
	"net/netip"
)

// cause says what the listings of a machine, and the questions asked on its links, have against reaching an
// address from there; dev is the device to which packets were seen routed, empty where that was not seen.
// It is empty when there is nothing against it, or nothing was listed.
func (a *analysis) cause(host int32, to netip.Addr, dev string) string {
	h := &a.follow.hosts[host]
	m := &h.machine
	hop := netip.Addr{}
	if len(m.routes) > 0 {
		r, ok := m.lookup(to)
		switch {
		case !ok:
			return fmt.Sprintf("%s has no route to %s", h.name, to)
		case r.kind != "":
			return fmt.Sprintf("%s's route to %s is “%s %s”", h.name, to, r.kind, r.to)
		case dev != "" && r.dev != dev:
			return fmt.Sprintf("%s's route to %s now goes by %s", h.name, to, r.dev)
		}
		dev, hop = r.dev, to
		if r.via.IsValid() {
			hop = r.via
		}
	}
	if !hop.IsValid() {
		return a.guess(h, to, dev)
	}
	if n, ok := m.neighbour(hop, dev); ok {
		if bad(n) {
			return fmt.Sprintf("neighbour %s on %s of %s is %s%s", hop, dev, h.name, n.state, asked(m, hop, dev))
		}
		return a.tunnelCause(h, n, to, dev)
	}
	if times := asked(m, hop, dev); times != "" {
		return fmt.Sprintf("%s knows no neighbour %s on %s%s", h.name, hop, dev, times)
	}
	if m.listsNeighboursOf(dev) {
		return fmt.Sprintf("%s has no neighbour entry for %s on %s", h.name, hop, dev)
	}
	return ""
}

func bad(n neighbour) bool { return n.state == "FAILED" || n.state == "INCOMPLETE" }

// asked says how often a neighbour was asked for in vain.
func asked(m *machine, addr netip.Addr, dev string) string {
	n := m.asked[question{dev: dev, addr: addr}]
	if n == 0 || m.answered[addr] {
		return ""
	}
	if n == 1 {
		return " (one who-has was not answered)"
	}
	return fmt.Sprintf(" (%d who-has were not answered)", n)
}

// guess is the cause where no route is listed, so that the next hop is not known: the neighbour is the
// address itself, or, as flannel does it, the first one of its subnet.
func (a *analysis) guess(h *hostInfo, to netip.Addr, dev string) string {
	m := &h.machine
	for _, near := range []bool{false, true} {
		for _, n := range m.neighbours {
			here := dev == "" || n.dev == dev || n.dev == ""
			if bad(n) && here && (n.addr == to || near && subnetOf(to) == n.addr) {
				on := n.dev
				if on == "" {
					on = dev
				}
				return fmt.Sprintf("neighbour %s on %s of %s is %s%s", n.addr, on, h.name, n.state, asked(m, n.addr, on))
			}
		}
		if q, ok := unanswered(m, to, dev, near); ok {
			return fmt.Sprintf("%s knows no neighbour %s on %s%s", h.name, q.addr, q.dev, asked(m, q.addr, q.dev))
		}
	}
	return ""
}

// unanswered finds a who-has in vain: the lowest address of several.
func unanswered(m *machine, to netip.Addr, dev string, near bool) (best question, found bool) {
	for q := range m.asked {
		if m.answered[q.addr] || dev != "" && q.dev != dev || q.addr != to && (!near || subnetOf(to) != q.addr) {
			continue
		}
		if c := q.addr.Compare(best.addr); !found || c < 0 || c == 0 && q.dev < best.dev {
			best, found = q, true
		}
	}
	return best, found
}

// subnetOf is the first address of what is a node's subnet by default: 24 bits of IPv4, 64 of IPv6. Flannel
// gives it to the node's VXLAN device.
func subnetOf(a netip.Addr) netip.Addr {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr()
}

// tunnelCause looks behind a neighbour on a VXLAN device: its link address must have an FDB entry, and that
// must name the machine on which the address lives.
func (a *analysis) tunnelCause(h *hostInfo, n neighbour, to netip.Addr, dev string) string {
	lists, tunnels := false, false
	for _, e := range h.machine.entries {
		lists = lists || e.dev == dev
		tunnels = tunnels || e.dev == dev && e.dst.IsValid()
	}
	if !lists || !n.hasAddress {
		return ""
	}
	e, ok := h.machine.entry(n.mac, dev)
	switch {
	case !ok && tunnels:
		return fmt.Sprintf("%s has no FDB entry for %s (neighbour %s) on %s", h.name, n.mac, n.addr, dev)
	case !ok || !e.dst.IsValid():
		return ""
	}
	at, known := a.homes[to]
	if !known {
		return ""
	}
	if real, ok := a.underlay[at.host]; ok && real != e.dst {
		return fmt.Sprintf("%s's FDB sends %s to %s, but %s is at %s", h.name, n.mac, e.dst,
			a.follow.hosts[at.host].name, real)
	}
	return ""
}

// findUnderlay learns the machines' own addresses from the tunnels they have sent.
func (a *analysis) findUnderlay() {
	for _, fl := range a.follow.order {
		for _, ex := range fl.exchanges {
			for _, packets := range ex.packets {
				for _, p := range packets {
					legs := a.follow.trail(p)
					for i := range legs {
						l := &legs[i]
						first := i == 0 && (l.local || l.routed) || l.tunnel != nil && l.tunnel.out != ""
						if l.tunnel != nil && first && l.tunnel.in == "" {
							a.underlay[l.host] = l.tunnel.outer.Src
						}
					}
				}
			}
		}
	}
	for _, fl := range a.follow.order {
		if fl.carrier {
			if at, ok := a.homes[fl.key.lo]; ok && !at.pod {
				a.underlay[at.host] = fl.key.lo
			}
		}
	}
}
