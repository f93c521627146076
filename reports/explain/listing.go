package explain

import (
	"net/netip"
	"strings"
)

// maxListed is how many entries of one kind a machine's listings may have; what is over is left out.
const maxListed = 100_000

// machine is what the listings of one machine say, and what was asked on its links.
type machine struct {
	neighbours []neighbour
	routes     []route
	entries    []entry
	asked      map[question]int
	answered   map[netip.Addr]bool
	// own are addresses that the machine was seen asking from.
	own map[netip.Addr]bool
}

// neighbour is a line of `ip neigh`.
type neighbour struct {
	addr       netip.Addr
	dev, mac   string
	state      string
	hasAddress bool
}

// route is a line of `ip route`. The kind is empty for one that carries packets, else unreachable,
// blackhole or prohibit.
type route struct {
	to   netip.Prefix
	via  netip.Addr
	dev  string
	kind string
}

// entry is a line of `bridge fdb`.
type entry struct {
	mac, dev string
	dst      netip.Addr
}

// question is a who-has on a device.
type question struct {
	dev  string
	addr netip.Addr
}

var states = map[string]bool{
	"PERMANENT": true, "REACHABLE": true, "STALE": true, "DELAY": true, "PROBE": true, "FAILED": true,
	"INCOMPLETE": true, "NOARP": true,
}

// parseNeighbour reads "172.16.0.0 dev flannel.1 lladdr ea:f6:36:35:fd:f9 PERMANENT" (iproute2,
// ip/ipneigh.c).
func parseNeighbour(line string) (n neighbour, ok bool) {
	words := strings.Fields(line)
	if len(words) < 2 || len(words) > 32 {
		return n, false
	}
	addr, err := netip.ParseAddr(words[0])
	if err != nil {
		return n, false
	}
	n.addr = addr
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case w == "dev" && i+1 < len(words):
			i++
			n.dev = words[i]
		case w == "lladdr" && i+1 < len(words):
			i++
			n.mac, n.hasAddress = strings.ToLower(words[i]), true
		case states[w]:
			n.state = w
		}
	}
	return n, n.state != ""
}

// parseRoute reads "172.16.0.0/24 via 172.16.0.0 dev flannel.1 onlink" (iproute2, ip/iproute.c).
func parseRoute(line string) (r route, ok bool) {
	words := strings.Fields(line)
	if len(words) < 2 || len(words) > 64 {
		return r, false
	}
	switch words[0] {
	case "unreachable", "blackhole", "prohibit":
		r.kind, words = words[0], words[1:]
	case "unicast", "throw":
		words = words[1:]
	}
	switch {
	case words[0] == "default":
		r.to = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case strings.Contains(words[0], "/"):
		p, err := netip.ParsePrefix(words[0])
		if err != nil {
			return r, false
		}
		r.to = p.Masked()
	default:
		a, err := netip.ParseAddr(words[0])
		if err != nil || a.Zone() != "" {
			return r, false
		}
		r.to = netip.PrefixFrom(a, a.BitLen())
	}
	for i := 1; i+1 < len(words); i++ {
		switch words[i] {
		case "via":
			r.via, _ = netip.ParseAddr(words[i+1])
		case "dev":
			r.dev = words[i+1]
		}
	}
	if words[0] == "default" && r.via.Is6() {
		r.to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return r, r.dev != "" || r.kind != ""
}

// parseEntry reads "ea:f6:36:35:fd:f9 dev flannel.1 dst 192.168.200.201 self permanent" (iproute2,
// bridge/fdb.c).
func parseEntry(line string) (e entry, ok bool) {
	words := strings.Fields(line)
	if len(words) < 3 || len(words) > 32 || words[1] != "dev" || !isMAC(words[0]) {
		return e, false
	}
	e.mac, e.dev = strings.ToLower(words[0]), words[2]
	for i := 3; i+1 < len(words); i++ {
		if words[i] == "dst" {
			e.dst, _ = netip.ParseAddr(words[i+1])
		}
	}
	return e, true
}

func isMAC(s string) bool {
	if len(s) != 17 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
		if (i%3 == 2) != (c == ':') || i%3 != 2 && !hex {
			return false
		}
	}
	return true
}

// lookup finds the route of an address: the longest prefix, the first of equals.
func (m *machine) lookup(to netip.Addr) (route, bool) {
	best, found := route{}, false
	for _, r := range m.routes {
		if r.to.Contains(to) && (!found || r.to.Bits() > best.to.Bits()) {
			best, found = r, true
		}
	}
	return best, found
}

// neighbour finds an entry. One without a device, as `ip neigh show dev X` prints, counts for each.
func (m *machine) neighbour(addr netip.Addr, dev string) (neighbour, bool) {
	for _, n := range m.neighbours {
		if n.addr == addr && (n.dev == dev || n.dev == "") {
			return n, true
		}
	}
	return neighbour{}, false
}

// listsNeighboursOf tells whether a listing shows anything of a device, so that what it does not show is not
// there.
func (m *machine) listsNeighboursOf(dev string) bool {
	for _, n := range m.neighbours {
		if n.dev == dev || n.dev == "" {
			return true
		}
	}
	return false
}

func (m *machine) entry(mac, dev string) (entry, bool) {
	for _, e := range m.entries {
		if e.mac == mac && e.dev == dev {
			return e, true
		}
	}
	return entry{}, false
}

func (m *machine) merge(o *machine) {
	m.neighbours = append(m.neighbours, o.neighbours...)
	m.routes = append(m.routes, o.routes...)
	m.entries = append(m.entries, o.entries...)
	for q, n := range o.asked {
		m.ask(q, n)
	}
	for a := range o.answered {
		m.answer(a)
	}
	for a := range o.own {
		m.owns(a)
	}
}

func (m *machine) ask(q question, n int) {
	if m.asked == nil {
		m.asked = map[question]int{}
	}
	if _, have := m.asked[q]; have || len(m.asked) < maxListed {
		m.asked[q] += n
	}
}

func (m *machine) owns(a netip.Addr) {
	if m.own == nil {
		m.own = map[netip.Addr]bool{}
	}
	if len(m.own) < maxListed {
		m.own[a] = true
	}
}

func (m *machine) answer(a netip.Addr) {
	if m.answered == nil {
		m.answered = map[netip.Addr]bool{}
	}
	if len(m.answered) < maxListed {
		m.answered[a] = true
	}
}
