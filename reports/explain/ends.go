package explain

import (
	"net/netip"
	"strings"
)

// endKind is how a packet's way ends, worst first.
type endKind int

const (
	// endDropped: a rule dropped it. endLoop: machines sent it round and round. endUnrouted: it came in and
	// was neither delivered nor sent on. endSent: it left a machine and was not seen again. endCame: it came
	// in, and was not captured leaving. endSeen: a capture saw it, and that is all. endPod and endHost: it was
	// handed to a pod's bridge, or to the machine itself. endNone: it was never seen.
	endDropped endKind = iota
	endLoop
	endUnrouted
	endSent
	endCame
	endSeen
	endPod
	endHost
	endNone
)

// end is where a packet's way ends.
type end struct {
	kind endKind
	// leg is the last one; first the first one.
	leg, first leg
	hops       int
	// next is the machine that should have seen it next; -1 when not known.
	next int32
	// rule says in words what dropped it.
	rule string
}

// home is a machine to which an address belongs.
type home struct {
	host int32
	// pod: it is behind a bridge there; else it is the machine's own.
	pod bool
}

// podSide knows the devices that lead to pods: bridges and their ports as Docker, CNI plugins and overlays
// name them, and what a trace has shown to be a bridge.
func (f *follower) podSide(host int32, dev string) bool {
	if dev == "" {
		return false
	}
	if f.hosts[host].bridges[dev] {
		return true
	}
	for _, prefix := range []string{
		"cni", "cbr", "docker", "veth", "cali", "lxc", "br-", "virbr", "podman", "kube-bridge", "weave",
	} {
		if strings.HasPrefix(dev, prefix) {
			return true
		}
	}
	return false
}

// findHomes learns from every packet where its source and its destination live. Where a packet was made
// tells more than where it went.
func (a *analysis) findHomes() {
	made, went := map[netip.Addr]home{}, map[netip.Addr]home{}
	for _, fl := range a.follow.order {
		for _, ex := range fl.exchanges {
			for direction, packets := range ex.packets {
				src, dst := fl.key.lo, fl.key.hi
				if direction == 1 {
					src, dst = dst, src
				}
				for _, p := range packets {
					a.home(a.follow.trail(p), src, dst, made, went)
				}
			}
		}
	}
	for i := range a.follow.hosts {
		for addr := range a.follow.hosts[i].machine.own {
			made[addr] = home{host: int32(i)}
		}
	}
	for _, fl := range a.follow.order {
		ownAddresses(fl.complaints, made)
	}
	ownAddresses(a.follow.loose, made)
	for addr, h := range made {
		went[addr] = h
	}
	a.homes = went
}

// ownAddresses learns from the errors that machines have sent.
func ownAddresses(all []complaint, made map[netip.Addr]home) {
	for i := range all {
		if c := &all[i]; c.own || c.left && !c.came {
			made[c.from] = home{host: c.host}
		}
	}
}

func (a *analysis) home(legs []leg, src, dst netip.Addr, made, went map[netip.Addr]home) {
	if len(legs) == 0 {
		return
	}
	first, last := &legs[0], &legs[len(legs)-1]
	switch {
	case first.local:
		made[src] = home{host: first.host}
	case a.follow.podSide(first.host, first.in):
		made[src] = home{host: first.host, pod: true}
	}
	switch {
	case last.delivered:
		went[dst] = home{host: last.host}
	case a.follow.podSide(last.host, last.out):
		went[dst] = home{host: last.host, pod: true}
	}
}

// learnRules finds the rules and policies after which a packet went on: those do not drop.
func (a *analysis) learnRules() {
	for _, fl := range a.follow.order {
		for _, ex := range fl.exchanges {
			for _, packets := range ex.packets {
				for _, p := range packets {
					a.learn(p)
				}
			}
		}
	}
}

func (a *analysis) learn(p *packet) {
	legs := a.follow.trail(p)
	for i := range p.passages {
		g := &p.passages[i]
		for j := range g.points {
			t := &g.points[j]
			if t.stage == Wire || t.rule == nil {
				continue
			}
			further := slicesAny(g.points, func(o *point) bool {
				return o.stage != Wire && order(o) > order(t)
			})
			// The packet was seen on another machine after this one.
			beyond := len(legs) > 1 && legs[len(legs)-1].host != g.host && order(t) >= 3
			if further || beyond {
				a.passes[ruleKey{g.host, t.rule}] = true
			}
		}
	}
}

func slicesAny(points []point, yes func(*point) bool) bool {
	for i := range points {
		if yes(&points[i]) {
			return true
		}
	}
	return false
}

type ruleKey struct {
	host int32
	rule *spoken
}

// end finds where a packet's way ends. Towards is the machine it should reach in the end, if known.
func (a *analysis) end(p *packet, dst netip.Addr, towards int32) end {
	legs := a.follow.trail(p)
	if len(legs) == 0 {
		return end{kind: endNone, next: -1}
	}
	l := legs[len(legs)-1]
	e := end{leg: l, first: legs[0], hops: len(legs), next: -1}
	h, known := a.homes[dst]
	if known {
		towards = h.host
	}
	if towards >= 0 && towards != l.host {
		e.next = towards
	}
	switch {
	case l.drop != "":
		e.kind, e.rule = endDropped, l.drop
	case a.stopped(&l) != "":
		e.kind, e.rule = endDropped, a.stopped(&l)
	case circles(legs):
		e.kind = endLoop
	case l.delivered || l.out == "lo":
		e.kind = endHost
	case a.follow.podSide(l.host, l.out):
		e.kind = endPod
	case l.routed || l.out != "":
		e.kind = endSent
	case l.hooked && l.last != nil && l.last.stage == PreRouting:
		e.kind = endUnrouted
		if !a.follow.hosts[l.host].showsRouting() {
			// The trace shows no later hook of any packet: it may just not reach that far.
			e.kind = endSeen
		}
	case (l.in != "" || l.seen != "") && !l.hooked && known && !h.pod && h.host == l.host:
		e.kind = endHost
	case l.in != "" && !l.hooked:
		e.kind = endCame
	default:
		e.kind = endSeen
	}
	return e
}

// circles tells a packet that one machine has sent on three times.
func circles(legs []leg) bool {
	times := map[int32]int{}
	for i := range legs {
		if times[legs[i].host]++; times[legs[i].host] == 3 {
			return true
		}
	}
	return false
}

// stopped tells the rule at which iptables' trace of a packet ends although more of its way was to come.
// The trace names a rule, not its verdict; but a packet that is accepted shows up in the next hook, where
// the machine has a table there that this packet must meet: any, except that nat is met by the first packet
// of a connection only.
func (a *analysis) stopped(l *leg) string {
	t := l.last
	if t == nil || t.rule == nil || t.drop != "" || a.passes[ruleKey{l.host, t.rule}] {
		return ""
	}
	rule := t.rule
	if rule.kind == "return" || rule.kind == "" {
		return ""
	}
	hooks := a.follow.hosts[l.host].hooks
	var later []Stage
	switch t.stage {
	case PreRouting:
		if rule.kind == "rule" {
			// A policy there is hardly ever changed, and routing may have refused the packet.
			later = []Stage{Forward, Input}
		}
	case Forward, Output:
		later = []Stage{PostRouting}
	}
	for _, stage := range later {
		for _, table := range []string{"mangle", "nat"} {
			if hooks[hookTable{stage, table}] && (table != "nat" || l.newest) {
				return ruleWords(rule)
			}
		}
		if stage != PostRouting && hooks[hookTable{stage, "filter"}] && rule.table == "raw" {
			return ruleWords(rule)
		}
	}
	return ""
}

func ruleWords(t *spoken) string {
	where := "chain " + t.chain + " of table " + t.table
	if t.kind == "policy" {
		return "the policy of " + where
	}
	return "rule " + t.rule + " of " + where
}

// showsRouting tells whether any packet was seen in a hook after routing.
func (h *hostInfo) showsRouting() bool {
	for at := range h.hooks {
		if at.stage == Forward || at.stage == Input {
			return true
		}
	}
	return false
}
