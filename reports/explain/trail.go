package explain

import (
	"cmp"
	"slices"
)

// packet is one packet on its way, from wherever it was seen.
type packet struct {
	id       int32
	length   int32
	flags    uint8
	passages []passage
}

// passage is a packet's way through one machine, once.
type passage struct {
	host int32
	// low and high are the times to live seen. A machine that routes takes one off, so they differ by one at
	// most; 0 when not known.
	low, high int16
	// port is the bridge's port by which the packet came.
	port   string
	newest bool
	points []point
}

// point is what is known of one hook, or of one device of a capture: the last rule that spoke.
type point struct {
	stage           Stage
	in, out, device string
	first, last     Time
	rule            *spoken
	drop            string
	outer           *Outer
}

// spoken is a rule or a policy that a trace names.
type spoken struct{ table, chain, kind, rule string }

// maxPassages and maxPoints bound what one packet may take, against loops and nonsense.
const (
	maxPassages = 16
	maxPoints   = 12
)

// see adds a sighting. Sightings may come in any order.
func (p *packet) see(host int32, s *Sighting, rule *spoken) {
	g := p.passage(host, s.TTL)
	if s.Port != "" {
		g.port = s.Port
	}
	if s.Table == "nat" {
		// Only the first packet of a connection meets the nat table.
		g.newest = true
	}
	t := g.point(s)
	if t == nil {
		return
	}
	if t.first.after(s.At) {
		t.first = s.At
	}
	if s.Drop != "" {
		t.drop = s.Drop
	}
	if s.Outer != nil && t.outer == nil {
		outer := *s.Outer
		t.outer = &outer
	}
	if !t.last.after(s.At) {
		t.last = s.At
		t.rule = rule
	}
}

func (p *packet) passage(host int32, ttl int16) *passage {
	for i := range p.passages {
		g := &p.passages[i]
		if g.host != host {
			continue
		}
		low, high := g.low, g.high
		if ttl > 0 {
			if low == 0 {
				low, high = ttl, ttl
			}
			low, high = min(low, ttl), max(high, ttl)
		}
		if high-low <= 1 {
			g.low, g.high = low, high
			return g
		}
	}
	if len(p.passages) >= maxPassages {
		return &p.passages[maxPassages-1]
	}
	p.passages = append(p.passages, passage{host: host, low: ttl, high: ttl})
	return &p.passages[len(p.passages)-1]
}

func (g *passage) point(s *Sighting) *point {
	for i := len(g.points) - 1; i >= 0; i-- {
		t := &g.points[i]
		same := t.stage == s.Stage && t.device == s.Device && (t.outer == nil) == (s.Outer == nil)
		if same && t.in == s.In && t.out == s.Out {
			return t
		}
		// A rule line of nftables has no packet header of its own, and a chain of the operator's no hook.
		if s.Stage == anyStage && t.stage != Wire && t.in == s.In && t.out == s.Out {
			return t
		}
	}
	if len(g.points) >= maxPoints {
		return nil
	}
	stage := s.Stage
	if stage == anyStage {
		stage = Output
		if s.In != "" {
			stage = PreRouting
		}
	}
	g.points = append(g.points, point{
		stage: stage, in: s.In, out: s.Out, device: s.Device, first: s.At, last: s.At,
	})
	return &g.points[len(g.points)-1]
}

// leg is a passage in the order of the packet's way, made ready to tell.
type leg struct {
	host    int32
	in, out string
	port    string
	// local: the machine sent it itself; delivered: it was for the machine itself; routed: it was sent on.
	local, delivered, routed bool
	// hooked says that netfilter saw it, and not only captures.
	hooked bool
	// seen is the device of a capture, where that is all there is.
	seen   string
	newest bool
	drop   string
	last   *point
	tunnel *point
	ttl    int16
	at     Time
}

// trail is a packet's way: the passages in order. A packet that is routed loses one of its time to live at
// each machine, which orders them whatever their clocks say; through a VXLAN tunnel it loses none, so of
// two equals the one that sent it, or whose pod did, comes first.
func (f *follower) trail(p *packet) []leg {
	legs := make([]leg, 0, len(p.passages))
	for i := range p.passages {
		legs = append(legs, legOf(&p.passages[i]))
	}
	slices.SortStableFunc(legs, func(a, b leg) int {
		if a.ttl > 0 && b.ttl > 0 && a.ttl != b.ttl {
			return cmp.Compare(b.ttl, a.ttl)
		}
		if o := cmp.Compare(f.later(&a), f.later(&b)); o != 0 {
			return o
		}
		if d, ok := a.at.sub(b.at); ok && a.at.Up < 0 {
			return cmp.Compare(d, 0)
		}
		return 0
	})
	return legs
}

// later is smaller for where a packet comes from and larger for where it goes.
func (f *follower) later(l *leg) int {
	switch {
	case l.local || f.podSide(l.host, l.in):
		return 0
	case l.delivered || f.podSide(l.host, l.out):
		return 2
	default:
		return 1
	}
}

func legOf(g *passage) leg {
	l := leg{host: g.host, port: g.port, newest: g.newest, ttl: g.high, at: unknown}
	points := make([]*point, 0, len(g.points))
	for i := range g.points {
		points = append(points, &g.points[i])
	}
	slices.SortStableFunc(points, func(a, b *point) int {
		if d, ok := a.first.sub(b.first); ok && d != 0 {
			return cmp.Compare(d, 0)
		}
		return cmp.Compare(order(a), order(b))
	})
	for _, t := range points {
		if l.at == unknown {
			l.at = t.first
		}
		if t.stage == Wire {
			l.capture(t)
			continue
		}
		l.hook(t)
	}
	if !l.hooked && l.in != "" && l.out != "" {
		l.routed = true
	}
	return l
}

// order is the way of a packet through the hooks; Input and Output end or begin it.
func order(t *point) int {
	switch t.stage {
	case Output:
		return 1
	case PreRouting:
		return 2
	case Forward:
		return 3
	case PostRouting, Input:
		return 4
	}
	return 0
}

func (l *leg) hook(t *point) {
	if !l.hooked {
		// What captures said of the devices, the hooks know better.
		l.hooked, l.in, l.out, l.seen = true, "", "", ""
	}
	if t.in != "" {
		l.in = t.in
	}
	if t.out != "" {
		l.out = t.out
	}
	switch t.stage {
	case Output:
		l.local, l.routed = true, true
	case Input:
		l.delivered = true
	case Forward, PostRouting:
		l.routed = true
	}
	if t.drop != "" {
		l.drop = t.drop
	}
	if l.last == nil || order(t) >= order(l.last) {
		l.last = t
	}
}

// capture adds a device on which the packet was captured. The first is where it came in and the last is
// where it left, unless the capture itself tells the direction.
func (l *leg) capture(t *point) {
	if t.outer != nil {
		l.tunnel = t
	}
	if l.hooked {
		return
	}
	device := t.device + t.in + t.out
	switch {
	case t.outer != nil:
	case t.in != "":
		if l.in == "" {
			l.in = t.in
		}
	case t.out != "":
		l.out = t.out
	case l.seen == "":
		l.seen = device
	case device != l.seen:
		if l.in == "" {
			l.in = l.seen
		}
		l.out = device
	}
	if l.in != "" || l.out != "" {
		return
	}
	if l.seen == "" {
		l.seen = device
	}
}
