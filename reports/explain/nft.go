package explain

import (
	"encoding/hex"
	"regexp"
	"strings"
)

// nftOpen is how many packets of one machine may be under way at once: rule lines name a packet by its
// trace id only, so its header is kept until it is old. A packet's lines come within microseconds of each
// other.
const nftOpen = 4096

// nftReader reads `nft monitor trace`:
//
//	trace id 8d2f ip filter FORWARD packet: iif "cni0" oif "flannel.1" … ip saddr 172.16.3.12 ip daddr …
//	trace id 8d2f ip filter FORWARD rule ip saddr 10.0.0.1 drop (verdict drop)
//	trace id 8d2f ip filter FORWARD policy accept
//
// The format is libnftables' (src/netlink.c, trace_print_*).
type nftReader struct {
	open map[string]Sighting
	ring [nftOpen]string
	next int

	clock clock
}

// line returns what the line adds: the packet at a chain, now perhaps with the rule that dropped it. A line
// that is understood but adds nothing has s.Src not valid.
func (n *nftReader) line(line string) (s Sighting, host string, ok bool) {
	i := strings.Index(line, "trace id ")
	if i < 0 {
		return s, "", false
	}
	words := strings.Fields(line[i:])
	if len(words) < 7 {
		return s, "", false
	}
	id, family, table, chain := words[2], words[3], words[4], words[5]
	switch family {
	case "ip", "ip6", "inet", "bridge", "netdev", "arp":
	default:
		return s, "", false
	}
	host, at := n.clock.prefix(line[:i])
	switch words[6] {
	case "packet:":
		s = nftPacket(words[7:])
		s.At, s.Table, s.Chain = at, family+" "+table, chain
		if !s.Src.IsValid() || !s.Dst.IsValid() {
			return Sighting{}, host, true
		}
		s.Stage = nftStage(&s)
		n.remember(id, s)
		return s, host, true
	case "rule", "verdict", "policy", "unknown":
		known, have := n.open[id]
		if !have {
			return Sighting{}, host, true
		}
		known.Kind, known.At = words[6], at
		// A rule is told with its own chain, which may be one that the hook's chain has jumped to.
		known.Table, known.Chain = family+" "+table, chain
		what := counters.ReplaceAllString(strings.Join(words[7:], " "), "counter")
		known.Rule = what
		if strings.HasSuffix(what, "(verdict drop)") || words[6] != "rule" && strings.HasPrefix(what, "drop") {
			known.Drop = nftDrop(words[6], strings.TrimSpace(strings.TrimSuffix(what, "(verdict drop)")), family,
				table, chain)
		}
		return known, host, true
	}
	return s, "", false
}

// counters are taken out of a rule's text, so that one rule is one rule whenever it speaks.
var counters = regexp.MustCompile(`counter packets \d+ bytes \d+`)

func nftDrop(kind, rule, family, table, chain string) string {
	where := "chain " + chain + " of table " + family + " " + table
	if kind == "policy" {
		return "the policy of " + where
	}
	return "rule “" + shortRule(rule) + "” in " + where
}

// shortRule keeps a sentence readable: sets may list thousands of elements.
func shortRule(rule string) string {
	const most = 120
	if r := []rune(rule); len(r) > most {
		return string(r[:most]) + "…"
	}
	return rule
}

func (n *nftReader) remember(id string, s Sighting) {
	if n.open == nil {
		n.open = map[string]Sighting{}
	}
	if _, have := n.open[id]; !have {
		delete(n.open, n.ring[n.next])
		n.ring[n.next] = id
		n.next = (n.next + 1) % nftOpen
	}
	n.open[id] = s
}

// nftStage is the hook, which the trace does not name: chains are often named after it; the devices tell as
// much as they do for iptables.
func nftStage(s *Sighting) Stage {
	name := strings.ToUpper(s.Chain)
	for _, hook := range []string{"PREROUTING", "POSTROUTING", "FORWARD", "OUTPUT", "INPUT"} {
		if strings.Contains(name, hook) {
			return hooks[hook]
		}
	}
	switch {
	case s.In != "" && s.Out != "":
		return Forward
	default:
		return anyStage
	}
}

// nftPacket reads the pairs and triples of a packet line.
func nftPacket(words []string) Sighting {
	s := Sighting{}
	s.ID = -1
	for i := 0; i+1 < len(words); i++ {
		value := words[i+1]
		switch words[i] {
		case "iif", "iifname":
			s.In = strings.Trim(value, `"`)
			i++
			continue
		case "oif", "oifname":
			s.Out = strings.Trim(value, `"`)
			i++
			continue
		}
		if i+2 >= len(words) {
			break
		}
		if words[i] == "tcp" && value == "flags" {
			// "tcp flags == syn" in newer versions, "tcp flags syn" in older ones.
			for _, w := range words[i+2 : min(len(words), i+4)] {
				for f := range strings.FieldsFuncSeq(w, func(r rune) bool { return r == ',' || r == '|' }) {
					s.flag(strings.ToUpper(f))
				}
			}
			continue
		}
		if nftField(words[i], words[i+1], words[i+2], &s) {
			i += 2
		}
	}
	if s.Proto == protoICMP && (s.Type == 3 || s.Type == 11) {
		s.Quoted = nftQuoted(words)
	}
	return s
}

// nftQuoted reads the beginning of the packet that an ICMP error quotes: of its header the trace shows the
// first twelve bytes, which hold the identification and the protocol, but no addresses.
func nftQuoted(words []string) *Packet {
	for i, w := range words {
		if w == "@th,64,96" && i+1 < len(words) {
			raw, err := hex.DecodeString(strings.TrimPrefix(words[i+1], "0x"))
			if err == nil && len(raw) == 12 && raw[0]>>4 == 4 {
				return &Packet{ID: int32(raw[4])<<8 | int32(raw[5]), Proto: raw[9]}
			}
		}
	}
	return &Packet{ID: -1}
}

// nftParts are the fields that nftables names by layer and key, and what they say.
var nftParts = map[string]part{
	"ip saddr": partSrc, "ip6 saddr": partSrc, "ip daddr": partDst, "ip6 daddr": partDst, "ip ttl": partTTL,
	"ip6 hoplimit": partTTL, "ip id": partID, "ip length": partLen, "ip6 length": partLen,
	"ip protocol": partProto, "ip6 nexthdr": partProto, "icmp id": partEchoID, "icmpv6 id": partEchoID,
	"icmp sequence": partSeq, "icmpv6 sequence": partSeq, "icmp mtu": partMTU, "icmpv6 mtu": partMTU,
	"udp sport": partSrcPort, "tcp sport": partSrcPort, "udp dport": partDstPort, "tcp dport": partDstPort,
	"tcp sequence": partTCPSeq,
}

// nftField reads a triple, if it is one that matters.
func nftField(layer, key, value string, s *Sighting) bool {
	name := layer + " " + key
	switch name {
	case "icmp type":
		s.Proto, s.Type = protoICMP, nftICMP[value]
		if s.Type == 0 && value != "echo-reply" {
			s.set(partType, value)
		}
		return true
	case "icmp code":
		// nft prints the codes of "destination unreachable", whatever the type.
		s.Code = nftCode[value]
		return true
	case "icmpv6 type":
		s.Proto, s.Type = protoICMPv6, nftICMP6[value]
		return true
	}
	p, ok := nftParts[name]
	s.set(p, value)
	switch {
	case name == "ip6 length":
		s.Len += 40 // the header, which IPv6 does not count
	case p == partSrcPort || p == partDstPort:
		s.Proto = protocol(layer)
	}
	return ok
}

var nftICMP = map[string]uint8{
	"echo-reply": 0, "destination-unreachable": 3, "redirect": 5, "echo-request": 8, "time-exceeded": 11,
	"parameter-problem": 12,
}

var nftCode = map[string]uint8{
	"net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4,
	"net-prohibited": 9, "host-prohibited": 10, "admin-prohibited": 13,
}

var nftICMP6 = map[string]uint8{
	"destination-unreachable": 1,
	"packet-too-big":          2,
	"time-exceeded":           3,
	"parameter-problem":       4,
	"echo-request":            128,
	"echo-reply":              129,
	"nd-router-solicit":       133,
	"nd-router-advert":        134,
	"nd-neighbor-solicit":     135,
	"nd-neighbor-advert":      136,
	"nd-redirect":             137,
	"mld2-listener-report":    143,
}
