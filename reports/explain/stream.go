package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// stream tells a flow of packets that do not name their answers: TCP, UDP and the rest, direction by
// direction.
func (a *analysis) stream(fl *flow) Finding {
	forward := a.client(fl)
	src, dst := fl.end(forward)
	f := Finding{rank: rankFine, Flow: fmt.Sprintf("%s → %s (%s)", src, dst, fl.protocol())}
	var said [2]string
	var ranks [2]rank
	var flags [2]uint8
	var parts []string
	for i, direction := range []int{forward, 1 - forward} {
		sorted, total, seen := a.direction(fl, direction)
		flags[i] = seen
		if total == 0 {
			ranks[i] = rankFine
			continue
		}
		ranks[i] = sorted[0].rank
		f.rank = min(f.rank, sorted[0].rank)
		said[i] = a.many(sorted, total, i == 1, seen)
		for _, t := range sorted {
			if t.rank < rankOneWay {
				f.lost += t.count
			}
		}
		if p := a.path([]string{"there", "back"}[i], sorted[0].first[0]); p != "" {
			f.Paths = append(f.Paths, p)
		}
		parts = append(parts, said[i])
	}
	switch {
	case said[0] == "" && said[1] == "":
		f.Sentence = "no packet of it was seen"
	case said[1] == "" && !fl.carrier && ranks[0] >= rankSilent:
		f.Sentence = said[0] + ", and no answer was seen"
		if fl.key.proto == protoTCP {
			f.rank = min(f.rank, rankSilent)
		} else {
			f.rank = min(f.rank, rankOneWay)
		}
		f.Sentence += a.wayBack(fl, forward)
	default:
		f.Sentence = strings.Join(parts, ", and ")
	}
	if flags[1]&flagRST != 0 && flags[1]&flagSYN == 0 {
		f.Sentence += ", which is a reset: nothing listens there, or a REJECT rule answered"
		f.rank = min(f.rank, rankComplaint)
	}
	return f
}

// wayBack says what is against an answer, on the machine where the last packet without one was seen.
func (a *analysis) wayBack(fl *flow, forward int) string {
	src, dst := fl.key.lo, fl.key.hi
	if forward == 1 {
		src, dst = dst, src
	}
	for _, ex := range a.ordered(fl) {
		for _, p := range ex.packets[forward] {
			e := a.end(p, dst, -1)
			if e.kind == endNone {
				continue
			}
			return a.noReply(&e, src, dst)
		}
	}
	return ""
}

func (a *analysis) ordered(fl *flow) []*exchange {
	keys := slices.Sorted(maps.Keys(fl.exchanges))
	all := make([]*exchange, len(keys))
	for i, k := range keys {
		all[i] = fl.exchanges[k]
	}
	return all
}

// client is the direction of who began: the one that sent the SYN, else the one with the higher port.
func (a *analysis) client(fl *flow) int {
	switch {
	case fl.began > 0:
		return int(fl.began - 1)
	case fl.carrier:
		return 0
	}
	if cmp.Compare(fl.key.loPort, fl.key.hiPort) < 0 {
		return 1
	}
	return 0
}

// end names an end of a flow, with its port.
func (fl *flow) end(direction int) (src, dst string) {
	lo, hi := withPort(fl.key.lo, fl.key.loPort), withPort(fl.key.hi, fl.key.hiPort)
	if direction == 1 {
		return hi, lo
	}
	return lo, hi
}

func withPort(addr netip.Addr, port uint16) string {
	if port == 0 {
		return addr.String()
	}
	return netip.AddrPortFrom(addr, port).String()
}

func (fl *flow) protocol() string {
	switch fl.key.proto {
	case protoTCP:
		return "TCP"
	case protoUDP:
		if fl.carrier {
			return "VXLAN, content not shown"
		}
		return "UDP"
	case protoICMP:
		return "ICMP"
	case protoICMPv6:
		return "ICMPv6"
	}
	return fmt.Sprintf("IP protocol %d", fl.key.proto)
}

// direction groups one direction's packets by their ends.
func (a *analysis) direction(fl *flow, direction int) (sorted []*tally, total int, flags uint8) {
	dst := fl.key.hi
	if direction == 1 {
		dst = fl.key.lo
	}
	towards := int32(-1)
	if h, ok := a.homes[dst]; ok {
		towards = h.host
	}
	tallies := map[string]*tally{}
	for _, ex := range a.ordered(fl) {
		for _, p := range ex.packets[direction] {
			e := a.end(p, dst, towards)
			text := a.went(&e, true) + a.why(&e, dst)
			t := tallies[text]
			if t == nil {
				t = &tally{text: text, rank: a.fate(&e), first: [2]*packet{p}}
				tallies[text] = t
			}
			t.add(p.length)
			total++
			flags |= p.flags
		}
	}
	return ranked(tallies), total, flags
}

// many says how many packets of a direction ended how.
func (a *analysis) many(sorted []*tally, total int, answer bool, flags uint8) string {
	one, several := "the packet", "packets"
	if answer {
		one, several = "the answer", "answers"
	}
	switch {
	case total == 1 && flags&(flagSYN|flagACK) == flagSYN:
		one = "the SYN"
	case total == 1 && flags&(flagSYN|flagACK) == flagSYN|flagACK:
		one = "the SYN-ACK"
	}
	if len(sorted) == 1 {
		if total == 1 {
			return one + " " + sorted[0].text
		}
		return fmt.Sprintf("each of %d %s %s", total, several, sorted[0].text)
	}
	var parts []string
	for i, t := range sorted[:min(len(sorted), 3)] {
		if i == 0 {
			parts = append(parts, fmt.Sprintf("of %d %s, %d: it %s", total, several, t.count, t.text))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d: it %s", t.count, t.text))
	}
	text := strings.Join(parts, "; ")
	if hint := lengths(sorted); hint != "" {
		text += "; " + hint
	}
	return text
}
