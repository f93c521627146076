package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// echoes tells a flow of echo requests and replies.
func (a *analysis) echoes(fl *flow) Finding {
	tallies := map[string]*tally{}
	exchanges := slices.SortedFunc(maps.Values(fl.exchanges), func(x, y *exchange) int {
		return cmp.Compare(x.seq, y.seq)
	})
	total := 0
	for _, ex := range exchanges {
		for _, pair := range a.pairs(ex) {
			text, rank, length := a.exchange(fl, pair[0], pair[1])
			t := tallies[text]
			if t == nil {
				t = &tally{text: text, rank: rank, first: pair, seq: ex.seq}
				tallies[text] = t
			}
			t.add(length)
			total++
		}
	}
	f := Finding{rank: rankFine}
	name := "ICMP echo"
	if fl.key.lo.Is6() {
		name = "ICMPv6 echo"
	}
	f.Flow = fmt.Sprintf("%s → %s (%s, id %d", fl.key.lo, fl.key.hi, name, fl.key.id)
	if total != 1 {
		f.Flow += fmt.Sprintf(", %d requests", total)
	}
	f.Flow += ")"
	if total == 0 {
		f.Sentence = "no packet of it was seen"
		return f
	}
	sorted := ranked(tallies)
	f.Sentence = sum(sorted, total)
	f.rank = sorted[0].rank
	for _, t := range sorted {
		if t.rank < rankOneWay {
			f.lost += t.count
		}
	}
	for i, what := range []string{"request", "reply"} {
		if p := a.path(what, sorted[0].first[i]); p != "" {
			f.Paths = append(f.Paths, p)
		}
	}
	return f
}

// ranked orders tallies: the worst first, then the most frequent.
func ranked(tallies map[string]*tally) []*tally {
	return slices.SortedFunc(maps.Values(tallies), func(x, y *tally) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(y.count, x.count), cmp.Compare(x.seq, y.seq),
			strings.Compare(x.text, y.text))
	})
}

// sum says how many ended how.
func sum(sorted []*tally, total int) string {
	if len(sorted) == 1 {
		if total == 1 {
			return sorted[0].text
		}
		if total == 2 {
			return "both alike: " + sorted[0].text
		}
		return fmt.Sprintf("all %d alike: %s", total, sorted[0].text)
	}
	const told = 3
	var parts []string
	for i, t := range sorted {
		if i == told {
			rest := 0
			for _, t := range sorted[told:] {
				rest += t.count
			}
			parts = append(parts, fmt.Sprintf("%d ended otherwise", rest))
			break
		}
		parts = append(parts, fmt.Sprintf("of %d requests, for %d %s", total, t.count, t.text))
		if i > 0 {
			parts[i] = fmt.Sprintf("for %d %s", t.count, t.text)
		}
	}
	text := strings.Join(parts, "; ")
	if hint := lengths(sorted); hint != "" {
		text += "; " + hint
	}
	return text
}

// lengths sees that what is lost is longer than all that is not, which points to an MTU.
func lengths(sorted []*tally) string {
	var lost, fine int32
	for _, t := range sorted {
		if t.rank < rankOneWay {
			if t.shortest == 0 {
				return ""
			}
			if lost == 0 || t.shortest < lost {
				lost = t.shortest
			}
			continue
		}
		fine = max(fine, t.longest)
	}
	if lost == 0 || fine == 0 || lost <= fine {
		return ""
	}
	return fmt.Sprintf("those lost have %d bytes or more, those not lost %d or less, which points to an "+
		"MTU", lost, fine)
}

// pairs joins requests to replies, in the order of time where an exchange was repeated.
func (a *analysis) pairs(ex *exchange) [][2]*packet {
	requests, replies := slices.Clone(ex.packets[0]), slices.Clone(ex.packets[1])
	byTime := func(x, y *packet) int {
		tx, ty := started(x), started(y)
		if d, ok := tx.sub(ty); ok {
			return cmp.Compare(d, 0)
		}
		return 0
	}
	slices.SortStableFunc(requests, byTime)
	slices.SortStableFunc(replies, byTime)
	if len(requests) > len(replies) && len(replies) > 0 {
		requests, replies = a.align(requests, replies)
	}
	var all [][2]*packet
	for i := range max(len(requests), len(replies)) {
		var pair [2]*packet
		if i < len(requests) {
			pair[0] = requests[i]
		}
		if i < len(replies) {
			pair[1] = replies[i]
		}
		all = append(all, pair)
	}
	return all
}

// align gives each reply to the latest request before it that one clock can tell of.
func (a *analysis) align(requests, replies []*packet) ([]*packet, []*packet) {
	aligned := make([]*packet, len(requests))
	for _, r := range replies {
		best := -1
		for i, q := range requests {
			if aligned[i] == nil && (best < 0 || before(q, r)) {
				best = i
			}
		}
		if best >= 0 {
			aligned[best] = r
		}
	}
	return requests, aligned
}

// before tells whether one machine saw q before r.
func before(q, r *packet) bool {
	for i := range q.passages {
		for j := range r.passages {
			x, y := &q.passages[i], &r.passages[j]
			if x.host != y.host || len(x.points) == 0 || len(y.points) == 0 {
				continue
			}
			if y.points[0].first.after(x.points[0].first) {
				return true
			}
		}
	}
	return false
}

func started(p *packet) Time {
	for i := range p.passages {
		for j := range p.passages[i].points {
			return p.passages[i].points[j].first
		}
	}
	return unknown
}

// exchange tells one request and its reply, either of which may not have been seen.
func (a *analysis) exchange(fl *flow, request, reply *packet) (string, rank, int32) {
	lo, hi := fl.key.lo, fl.key.hi
	if request == nil {
		e := a.end(reply, lo, -1)
		return "only the reply was seen: it " + a.went(&e, true) + a.why(&e, lo), a.fate(&e), reply.length
	}
	q := a.end(request, hi, -1)
	if reply == nil {
		text := "the request " + a.went(&q, false) + a.why(&q, hi)
		rank := a.fate(&q)
		if rank >= rankSilent {
			rank = rankSilent
			text += ", and no reply was seen"
			if q.kind != endCame {
				text += a.noReply(&q, lo, hi)
			}
		}
		return text, rank, request.length
	}
	r := a.end(reply, lo, q.first.host)
	delivered := q
	if delivered.kind > endUnrouted && delivered.leg.host == r.first.host {
		// The reply proves that the request arrived, whatever its own trace shows.
		if a.follow.podSide(r.first.host, r.first.in) {
			delivered.kind, delivered.leg.out = endPod, r.first.in
		} else if r.first.local {
			delivered.kind = endHost
		}
	}
	if q.kind == endSent && r.first.host != q.leg.host || q.kind == endSeen || q.kind == endCame {
		text := "the request " + a.answered(&q)
		return a.withReply(text, &q, &r, lo, reply.length)
	}
	return a.withReply("the request "+a.went(&delivered, true), &q, &r, lo, reply.length)
}

// noReply says what is against a reply on the machine that saw the request last: the pod cannot be found
// there, or the way back is missing.
func (a *analysis) noReply(q *end, lo, hi netip.Addr) string {
	reason := ""
	if q.kind == endPod {
		reason = a.cause(q.leg.host, hi, q.leg.out)
	}
	if reason == "" {
		reason = a.cause(q.leg.host, lo, "")
	}
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// answered is for a request of which not the whole way was seen, but which a reply proves to have arrived.
func (a *analysis) answered(q *end) string {
	l := &q.leg
	if q.kind == endSeen || q.kind == endCame {
		return "was seen on " + seenOn(l) + a.follow.hosts[l.host].name
	}
	return "left " + a.follow.hosts[l.host].name + " by " + l.out + " and was answered"
}

func (a *analysis) withReply(text string, q, r *end, lo netip.Addr, length int32) (string, rank, int32) {
	rank := a.fate(r)
	if rank < rankFine && r.leg.host == q.first.host && r.kind != endDropped && r.kind != endUnrouted {
		// Nothing of the way before the request's first sighting was traced: the reply has gone as far back.
		rank = rankOneWay
		if r.kind == endSeen {
			rank = rankFine
		}
	}
	return text + ", and " + a.back(r) + a.why(r, lo), rank, length
}
