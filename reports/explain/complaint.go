package explain

import (
	"fmt"
	"net/netip"
)

// complaint is an ICMP error about a packet of a flow.
type complaint struct {
	// host is where it was seen; own says that this machine sent it.
	host int32
	own  bool
	// left and came say that a capture saw it go out, and come in.
	left, came bool
	// from and to are the error's addresses.
	from, to   netip.Addr
	proto      uint8
	kind, code uint8
	mtu        int32
	quoted     Packet
	direction  int
	first      Time
	id         int32
	count      int
}

// maxComplaints bounds the different errors of one flow, maxLoose those whose flow is not known.
const (
	maxComplaints = 16
	maxLoose      = 1024
)

// isError tells ICMP errors, which quote another packet: RFC 792 and RFC 4443.
func isError(p *Packet) bool {
	switch p.Proto {
	case protoICMP:
		return p.Type == 3 || p.Type == 11 || p.Type == 12
	case protoICMPv6:
		return p.Type >= 1 && p.Type <= 4
	}
	return false
}

// complain takes in an ICMP error: to the flow it is about, where it tells; else it is kept until all is
// read.
func (f *follower) complain(host int32, s *Sighting) {
	c := complaint{
		host: host, own: s.Stage == Output || s.In == "lo", left: s.Stage == Wire && s.Out != "",
		came: s.In != "", from: s.Src, to: s.Dst, proto: s.Proto, kind: s.Type,
		code: s.Code, mtu: s.MTU, first: s.At, id: s.ID, count: 1,
	}
	if s.Quoted != nil {
		c.quoted = *s.Quoted
	} else {
		c.quoted.ID = -1
	}
	c.quoted.Outer, c.quoted.Quoted = nil, nil
	if !c.quoted.Src.IsValid() {
		c.quoted.Src = s.Dst
	}
	if !c.quoted.Dst.IsValid() || !named(&c.quoted) {
		if len(f.loose) < maxLoose {
			f.loose = addComplaint(f.loose, c, maxLoose)
		}
		return
	}
	fl, direction := f.flow(&c.quoted)
	if fl == nil {
		f.overflow++
		return
	}
	c.direction = direction
	fl.complaints = addComplaint(fl.complaints, c, maxComplaints)
}

// named tells whether a quoted packet says enough to know its flow.
func named(p *Packet) bool {
	switch p.Proto {
	case 0:
		return false
	case protoTCP, protoUDP:
		return p.SrcPort != 0 && p.DstPort != 0
	case protoICMP, protoICMPv6:
		return p.echo()
	}
	return true
}

// addComplaint adds one, or counts it with those of the same kind: an error shows up on a line for each
// rule.
func addComplaint(all []complaint, c complaint, most int) []complaint {
	for i := range all {
		o := &all[i]
		if o.host != c.host || o.from != c.from || o.to != c.to || o.proto != c.proto || o.kind != c.kind ||
			o.code != c.code || o.direction != c.direction || o.quoted.Dst != c.quoted.Dst {
			continue
		}
		if o.id != c.id {
			o.count++
			o.id = c.id
		}
		o.own, o.left, o.came = o.own || c.own, o.left || c.left, o.came || c.came
		if o.first.after(c.first) {
			o.first, o.quoted = c.first, c.quoted
		}
		return all
	}
	if len(all) >= most {
		return all
	}
	return append(all, c)
}

// attach gives the loose complaints to the flows they may be about.
func (a *analysis) attach() {
	byPair := map[[2]netip.Addr][]*flow{}
	for _, fl := range a.follow.order {
		for _, pair := range [][2]netip.Addr{{fl.key.lo, fl.key.hi}, {fl.key.hi, fl.key.lo}} {
			byPair[pair] = append(byPair[pair], fl)
		}
	}
	for _, c := range a.follow.loose {
		to := c.quoted.Dst
		if !to.IsValid() {
			// nftables' trace shows no address of the quoted packet; that the error comes from where the packet
			// went is the best there is.
			to = c.from
		}
		for _, fl := range byPair[[2]netip.Addr{c.quoted.Src, to}] {
			if c.quoted.Proto != 0 && c.quoted.Proto != fl.key.proto {
				continue
			}
			if c.quoted.DstPort != 0 && c.quoted.DstPort != fl.key.hiPort && c.quoted.DstPort != fl.key.loPort {
				continue
			}
			c.direction = 0
			if fl.key.lo != c.quoted.Src {
				c.direction = 1
			}
			fl.complaints = addComplaint(fl.complaints, c, maxComplaints)
		}
	}
}

// words are what a complaint says in plain words, and what it means.
func (c *complaint) words() (says, means string) {
	v6 := c.proto == protoICMPv6
	switch {
	case !v6 && c.kind == 3 && c.code == 0, v6 && c.kind == 1 && c.code == 0:
		return "network unreachable", "there was no route"
	case !v6 && c.kind == 3 && c.code == 1:
		return "host unreachable", "neighbour resolution failed"
	case v6 && c.kind == 1 && c.code == 3:
		return "address unreachable", "neighbour resolution failed"
	case !v6 && c.kind == 3 && c.code == 3, v6 && c.kind == 1 && c.code == 4:
		return "port unreachable", "nothing listens there, or a REJECT rule answered"
	case !v6 && c.kind == 3 && c.code == 4, v6 && c.kind == 2:
		if c.mtu > 0 {
			return "packet too big", fmt.Sprintf("the way on carries at most %d bytes", c.mtu)
		}
		return "packet too big", "the way on carries less"
	case !v6 && c.kind == 3 && (c.code == 9 || c.code == 10 || c.code == 13), v6 && c.kind == 1 && c.code == 1:
		return "prohibited", "a REJECT rule answered"
	case c.kind == 11 && c.code == 0, v6 && c.kind == 3 && c.code == 0:
		return "time to live exceeded", "it went in a circle"
	case c.kind == 11, v6 && c.kind == 3:
		return "reassembly time exceeded", "fragments were lost"
	default:
		return "unreachable", ""
	}
}

// unresolved tells the errors that a machine sends when it cannot find a neighbour's address.
func (c *complaint) unresolved() bool {
	if c.proto == protoICMPv6 {
		return c.kind == 1 && c.code == 3
	}
	return c.kind == 3 && c.code == 1
}

// atOnce is the time in seconds below which "host unreachable" is not the end of a search for a neighbour:
// Linux asks three times, a second apart (net/ipv4/arp.c, neigh_probe; sysctl retrans_time_ms).
const atOnce = 0.5

// tell renders a complaint as the end of a sentence.
func (a *analysis) tell(fl *flow, c *complaint) string {
	f := a.follow
	who := c.from.String()
	own := c.own || c.left && !c.came
	h, known := a.homes[c.from]
	where := c.host
	switch {
	case own:
		who = f.hosts[c.host].name
	case known && !h.pod:
		who, own, where = f.hosts[h.host].name, true, h.host
	}
	whom := c.to.String()
	switch at, ok := a.homes[c.to]; {
	case c.to == c.from:
		whom = "itself"
	case ok && at.pod && own && at.host == where:
		whom = "its own pod " + whom
	}
	says, means := c.words()
	wait, timed := a.delay(fl, c)
	later := ""
	if timed && wait >= 0.1 {
		later = fmt.Sprintf("%.1f s later ", wait)
	}
	times := ""
	if c.count > 1 {
		times = fmt.Sprintf(", %d times", c.count)
	}
	text := fmt.Sprintf("%s%s told %s “%s” (ICMP type %d code "+
		"%d%s)", later, who, whom, says, c.kind, c.code, times)
	switch {
	case means == "":
	case c.unresolved() && timed && wait < atOnce:
		text += ", and at once: a REJECT rule or an unreachable route does that"
	case c.unresolved() && own:
		text += ", which means that " + means + " on " + f.hosts[where].name
		if dev := a.leftBy(fl, c); dev != "" {
			text += " at " + dev
		}
	default:
		text += ", which means that " + means
	}
	return text
}

// about are the packets a complaint is about.
func (a *analysis) about(fl *flow, c *complaint) []*packet {
	if c.quoted.Proto != fl.key.proto {
		return nil
	}
	if ex, ok := fl.exchanges[exchangeKey(&c.quoted, c.direction)]; ok {
		return ex.packets[c.direction]
	}
	return nil
}

// delay is the time from the last sighting of the packet to the complaint, by the same machine's clock.
func (a *analysis) delay(fl *flow, c *complaint) (float64, bool) {
	best, found := 0.0, false
	for _, p := range a.about(fl, c) {
		for i := range p.passages {
			g := &p.passages[i]
			if g.host != c.host {
				continue
			}
			for j := range g.points {
				if d, ok := c.first.sub(g.points[j].last); ok && d >= 0 && (!found || d < best) {
					best, found = d, true
				}
			}
		}
	}
	return best, found
}

// leftBy is the device to which the machine had routed the packet.
func (a *analysis) leftBy(fl *flow, c *complaint) string {
	for _, p := range a.about(fl, c) {
		for _, l := range a.follow.trail(p) {
			if l.host == c.host && l.out != "" {
				return l.out
			}
		}
	}
	return ""
}
