package explain

import "strings"

// unify makes one machine of those that are the same: one that an input names itself, and one that is only
// the name of a file which contains that name, as node04-neigh.txt does.
func (f *follower) unify() {
	same := map[int32]int32{}
	for i := range f.hosts {
		if !f.hosts[i].guessed {
			continue
		}
		best := int32(-1)
		for j := range f.hosts {
			if f.hosts[j].guessed || !hasWord(f.hosts[i].name, f.hosts[j].name) {
				continue
			}
			if best < 0 || len(f.hosts[j].name) > len(f.hosts[best].name) {
				best = int32(j)
			}
		}
		if best >= 0 {
			same[int32(i)] = best
		}
	}
	if len(same) == 0 {
		return
	}
	for from, to := range same {
		a, b := &f.hosts[from], &f.hosts[to]
		b.traced = b.traced || a.traced
		for k := range a.hooks {
			b.hooks[k] = true
		}
		for k := range a.bridges {
			b.bridges[k] = true
		}
		b.machine.merge(&a.machine)
		a.traced, a.machine = false, machine{}
	}
	for _, fl := range f.order {
		for i := range fl.complaints {
			rename(&fl.complaints[i].host, same)
		}
		for _, ex := range fl.exchanges {
			for _, packets := range ex.packets {
				for _, p := range packets {
					p.rename(same)
				}
			}
		}
	}
	for i := range f.loose {
		rename(&f.loose[i].host, same)
	}
}

func rename(host *int32, same map[int32]int32) {
	if to, ok := same[*host]; ok {
		*host = to
	}
}

// rename gives a packet's passages to other machines, and joins those that are one now.
func (p *packet) rename(same map[int32]int32) {
	var joined []passage
next:
	for _, g := range p.passages {
		rename(&g.host, same)
		for i := range joined {
			o := &joined[i]
			low, high := min(o.low, g.low), max(o.high, g.high)
			if o.low == 0 || g.low == 0 {
				low = max(o.low, g.low)
			}
			if o.host != g.host || high-low > 1 {
				continue
			}
			o.low, o.high, o.newest = low, high, o.newest || g.newest
			if o.port == "" {
				o.port = g.port
			}
			o.points = append(o.points, g.points...)
			o.points = o.points[:min(len(o.points), maxPoints)]
			continue next
		}
		joined = append(joined, g)
	}
	p.passages = joined
}

// hasWord tells whether a name contains another as a whole word.
func hasWord(name, word string) bool {
	for from := 0; ; {
		i := strings.Index(name[from:], word)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(word)
		if (start == 0 || !letter(name[start-1])) && (end == len(name) || !letter(name[end])) {
			return true
		}
		from = start + 1
	}
}

func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
