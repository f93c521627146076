package explain

import (
	"net/netip"
	"strings"
)

// dumpReader reads what tcpdump prints, with or without -n, -v, -e, -t and -i any. A packet may take
// several lines: with -v the addresses follow on a line of their own, and so does what a VXLAN packet
// carries.
type dumpReader struct {
	// device is what tcpdump said it listens on; empty for "any".
	device string
	// at, dev and dir belong to the packet that the last line with a time began.
	at  Time
	dev string
	dir string
	// header is what a "(tos … ttl … id …)" has told of the packet whose addresses follow.
	header    Packet
	hasHeader bool
	// outer is the VXLAN packet whose content follows.
	outer *Outer
	// last is an ICMP error whose quoted packet may follow.
	last *Sighting
}

// dumped is what a line, or several together, told.
type dumped struct {
	sighting *Sighting
	ask      *Ask
}

// line reads one line. Lines that only continue a packet are understood and add nothing.
func (d *dumpReader) line(raw string) (out []dumped, ok bool) {
	if d.listening(raw) {
		return nil, true
	}
	line := strings.TrimLeft(raw, " \t")
	continued := line != raw
	if at, rest, timed := dumpTime(line); timed {
		out = d.flush()
		d.outer, d.hasHeader = nil, false
		d.at, d.dev, d.dir = at, d.device, ""
		more, ok := d.body(rest, true, false)
		if !ok && len(out) == 0 {
			return nil, false
		}
		return append(out, more...), true
	}
	if strings.HasPrefix(line, "IP ") || strings.HasPrefix(line, "IP6 ") {
		// The content of a tunnel begins a line at its left edge; a quoted packet is indented.
		if !continued && d.outer == nil {
			// tcpdump -t, without times.
			out = d.flush()
			d.at, d.dev, d.dir = unknown, d.device, ""
		}
		more, ok := d.body(line, false, continued)
		return append(out, more...), ok
	}
	if continued && d.hasHeader {
		return d.packet(line, continued)
	}
	if !continued && strings.HasPrefix(line, "ARP, ") {
		d.at, d.dev = unknown, d.device
		return d.body(line, false, false)
	}
	return nil, false
}

// flush gives out a packet that has waited for more lines.
func (d *dumpReader) flush() []dumped {
	if d.last == nil {
		return nil
	}
	s := d.last
	d.last = nil
	return []dumped{{sighting: s}}
}

// listening reads "listening on flannel.1, link-type EN10MB (Ethernet), …".
func (d *dumpReader) listening(line string) bool {
	_, rest, ok := strings.Cut(line, "listening on ")
	if !ok || !strings.Contains(rest, "link-type ") {
		return false
	}
	d.device, _, _ = strings.Cut(rest, ",")
	if d.device == "any" {
		d.device = ""
	}
	return true
}

// dumpTime reads the time that begins a packet, in any of the forms of -t … -ttttt.
func dumpTime(line string) (Time, string, bool) {
	at := unknown
	stamp, rest, ok := strings.Cut(line, " ")
	if !ok {
		return at, "", false
	}
	if len(stamp) == 10 && stamp[4] == '-' {
		day, _ := wall(stamp + " 00:00:00")
		at.Day = day
		stamp, rest, ok = strings.Cut(rest, " ")
		if !ok {
			return at, "", false
		}
	}
	if seconds := timeOfDay(stamp); seconds >= 0 {
		at.Wall = seconds
		return at, rest, true
	}
	// -tt: seconds since 1970.
	whole, fraction, dot := strings.Cut(stamp, ".")
	if n := number(whole, 1<<40); dot && n > 1e8 && len(fraction) <= 9 {
		at.Day = int32(n / 86400)
		at.Wall = float64(n%86400) + float64(number(fraction, 1e9))/pow10(len(fraction))
		return at, rest, true
	}
	return at, "", false
}

func pow10(n int) float64 {
	p := 1.0
	for range n {
		p *= 10
	}
	return p
}

// body reads a line from "IP …" on; before that may stand a device and a direction (-i any), or Ethernet
// addresses (-e).
func (d *dumpReader) body(rest string, timed, continued bool) ([]dumped, bool) {
	if timed {
		rest = d.link(rest)
	}
	if rest == "" {
		return nil, false
	}
	if after, ok := strings.CutPrefix(rest, "ARP, "); ok {
		return d.arp(after)
	}
	switch {
	case strings.HasPrefix(rest, "IP "):
		rest = rest[len("IP "):]
	case strings.HasPrefix(rest, "IP6 "):
		rest = rest[len("IP6 "):]
	default:
		return nil, false
	}
	if strings.HasPrefix(rest, "(") {
		var ok bool
		if rest, ok = d.details(rest); !ok {
			return nil, false
		}
		if strings.TrimSpace(rest) == "" {
			return nil, true
		}
	}
	return d.packet(strings.TrimSpace(rest), continued)
}

// link takes off what tells of the link: "flannel.1 In  IP …" or "aa:… > bb:…, ethertype IPv4 (0x0800),
// length 98: ".
func (d *dumpReader) link(rest string) string {
	if strings.HasPrefix(rest, "IP ") || strings.HasPrefix(rest, "IP6 ") || strings.HasPrefix(rest, "ARP, ") {
		return rest
	}
	words := strings.Fields(rest)
	if len(words) > 3 {
		switch words[1] {
		case "In", "Out", "B", "M", "P":
			d.dev, d.dir = words[0], words[1]
			_, rest, _ = strings.Cut(rest, words[0])
			_, rest, _ = strings.Cut(rest, words[1])
			rest = strings.TrimLeft(rest, " ")
			if strings.HasPrefix(rest, "ifindex ") {
				_, rest, _ = strings.Cut(rest[len("ifindex "):], " ")
			}
			return d.link(rest)
		}
	}
	_, after, ok := strings.Cut(rest, "ethertype ")
	if !ok {
		return ""
	}
	kind, _, _ := strings.Cut(after, " ")
	_, after, ok = strings.Cut(after, ": ")
	if !ok {
		return ""
	}
	switch strings.TrimSuffix(kind, ",") {
	case "IPv4":
		return "IP " + after
	case "IPv6":
		return "IP6 " + after
	case "ARP":
		return "ARP, " + after
	}
	return ""
}

// details reads "(tos 0x0, ttl 63, id 27538, offset 0, flags [none], proto ICMP (1), length 84)", and IPv6's
// "(hlim 64, next-header ICMPv6 (58) payload length: 64)".
func (d *dumpReader) details(rest string) (string, bool) {
	end := closing(rest)
	if end < 0 {
		return "", false
	}
	p := Packet{ID: -1}
	words := strings.FieldsFunc(rest[1:end], func(r rune) bool { return r == ' ' || r == ',' })
	for i := 0; i+1 < len(words); i++ {
		value := words[i+1]
		switch words[i] {
		case "ttl", "hlim":
			p.TTL = int16(number(value, 255))
		case "id":
			p.ID = int32(number(value, 0xffff))
		case "proto", "next-header":
			p.Proto = protocol(value)
		case "length":
			p.Len = int32(number(value, 1<<24))
		case "length:":
			p.Len = int32(number(value, 1<<24)) + 40
		}
	}
	d.header, d.hasHeader = p, true
	return rest[end+1:], true
}

// closing is the index of the parenthesis that closes the first one.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// packet reads "172.16.0.7 > 172.16.3.12: ICMP echo request, id 492, seq 1, length 64".
func (d *dumpReader) packet(text string, continued bool) ([]dumped, bool) {
	p := Packet{ID: -1}
	if d.hasHeader {
		p, d.hasHeader = d.header, false
	}
	from, rest, ok := strings.Cut(text, " > ")
	if !ok {
		return nil, false
	}
	to, what, ok := strings.Cut(rest, ": ")
	if !ok {
		return nil, false
	}
	if !endpoint(from, &p.Src, &p.SrcPort) || !endpoint(to, &p.Dst, &p.DstPort) {
		return nil, false
	}
	if !content(what, &p) {
		return nil, false
	}
	if d.last != nil && continued {
		d.last.Quoted = &p
		return d.flush(), true
	}
	out := d.flush()
	if vni, tunnel := vxlanHeader(what); tunnel {
		d.outer = &Outer{Src: p.Src, Dst: p.Dst, VNI: vni}
		return out, true
	}
	s := &Sighting{Packet: p, At: d.at, Stage: Wire}
	s.Outer, d.outer = d.outer, nil
	switch d.dir {
	case "In", "B", "M", "P":
		s.In = d.dev
	case "Out":
		s.Out = d.dev
	default:
		s.Device = d.dev
	}
	if s.Quoted != nil || isError(&s.Packet) {
		d.last = s
		return out, true
	}
	return append(out, dumped{sighting: s}), true
}

// vxlanHeader knows VXLAN by what tcpdump calls it: on flannel's port it takes it for OTV, which has the
// same header.
func vxlanHeader(what string) (uint32, bool) {
	if !strings.HasPrefix(what, "OTV, ") && !strings.HasPrefix(what, "VXLAN, ") {
		return 0, false
	}
	for _, key := range []string{"instance ", "vni "} {
		if _, after, ok := strings.Cut(what, key); ok {
			word, _, _ := strings.Cut(strings.TrimSpace(after), " ")
			return uint32(number(strings.TrimSuffix(word, ","), 1<<24)), true
		}
	}
	return 0, true
}

// endpoint reads an address, perhaps with a port behind a dot. Names (tcpdump without -n) are no addresses,
// and cannot be followed.
func endpoint(s string, addr *netip.Addr, port *uint16) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		*addr = a
		return true
	}
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return false
	}
	a, err := netip.ParseAddr(s[:i])
	if err != nil {
		return false
	}
	*addr, *port = a, uint16(number(s[i+1:], 0xffff))
	if *port == 0 {
		*port = services[s[i+1:]]
	}
	return true
}

// services are the names that tcpdump without -nn prints for the ports that overlays' reports are about.
var services = map[string]uint16{
	"domain": 53, "http": 80, "https": 443, "ssh": 22, "otv": 8472, "vxlan": 4789, "http-alt": 8080,
}

func (d *dumpReader) arp(what string) ([]dumped, bool) {
	if _, after, ok := strings.Cut(what, "who-has "); ok {
		asked, after, _ := strings.Cut(after, " ")
		_, after, ok := strings.Cut(after, "tell ")
		asking, _, _ := strings.Cut(after, ",")
		a, err1 := netip.ParseAddr(asked)
		b, err2 := netip.ParseAddr(asking)
		if !ok || err1 != nil || err2 != nil {
			return nil, false
		}
		return []dumped{{ask: &Ask{Device: d.dev, Asked: a, Asking: b, Sent: d.dir == "Out"}}}, true
	}
	if before, _, ok := strings.Cut(what, " is-at "); ok {
		a, err := netip.ParseAddr(before[strings.LastIndexByte(before, ' ')+1:])
		if err != nil {
			return nil, false
		}
		return []dumped{{ask: &Ask{Device: d.dev, Asked: a, Reply: true}}}, true
	}
	return nil, false
}
