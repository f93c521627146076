package explain

import (
	"net/netip"
	"strings"
)

// content reads what follows the addresses: "ICMP echo request, id 492, …", "Flags [S], seq …", "UDP,
// length 5". What is neither ICMP nor TCP but has ports is taken for UDP: tcpdump prints its content by the
// port.
func content(what string, p *Packet) bool {
	switch {
	case strings.HasPrefix(what, "ICMP6, "):
		p.Proto = protoICMPv6
		return icmp6Content(what[len("ICMP6, "):], p)
	case strings.HasPrefix(what, "[icmp6 sum ok] ICMP6, "):
		p.Proto = protoICMPv6
		return icmp6Content(what[len("[icmp6 sum ok] ICMP6, "):], p)
	case strings.HasPrefix(what, "ICMP "):
		p.Proto = protoICMP
		return icmpContent(what[len("ICMP "):], p)
	case strings.HasPrefix(what, "Flags ["):
		p.Proto = protoTCP
		tcpContent(what, p)
		return true
	case strings.HasPrefix(what, "HBH "):
		p.Proto, p.Type = protoICMPv6, 143
		return true
	case p.SrcPort != 0 || p.DstPort != 0:
		if p.Proto == 0 {
			p.Proto = protoUDP
		}
		if p.Len == 0 {
			if n := length(what); n > 0 {
				p.Len = n + 28
			}
		}
		return true
	}
	return p.Proto != 0
}

// echoContent reads ", id 492, seq 1, length 64".
func echoContent(rest string, p *Packet, header int32) {
	words := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == ',' })
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "id":
			p.EchoID = uint16(number(words[i+1], 0xffff))
		case "seq":
			p.Seq = uint16(number(words[i+1], 0xffff))
		}
	}
	if n := length(rest); n > 0 && p.Len == 0 {
		p.Len = n + header
	}
}

func length(s string) int32 {
	i := strings.LastIndex(s, "length ")
	if i < 0 {
		return 0
	}
	word, _, _ := strings.Cut(s[i+len("length "):], " ")
	return int32(number(strings.TrimRight(word, ":,"), 1<<24))
}

func icmpContent(what string, p *Packet) bool {
	switch {
	case strings.HasPrefix(what, "echo request,"):
		p.Type = 8
		echoContent(what, p, 20)
		return true
	case strings.HasPrefix(what, "echo reply,"):
		p.Type = 0
		echoContent(what, p, 20)
		return true
	case strings.HasPrefix(what, "time exceeded in-transit"):
		p.Type = 11
		p.Quoted = &Packet{ID: -1}
		return true
	case strings.HasPrefix(what, "ip reassembly time exceeded"):
		p.Type, p.Code = 11, 1
		p.Quoted = &Packet{ID: -1}
		return true
	case strings.HasPrefix(what, "redirect"):
		p.Type = 5
		return true
	}
	text, _, _ := strings.Cut(what, ", length")
	if !strings.Contains(text, "unreachable") {
		p.Type = 255
		return true
	}
	p.Type = 3
	p.Quoted = &Packet{ID: -1}
	words := strings.Fields(text)
	for i, w := range words {
		if a, err := netip.ParseAddr(w); err == nil {
			p.Quoted.Dst = a
			continue
		}
		if w == "port" && i > 0 && i+1 < len(words) {
			p.Quoted.DstPort = uint16(number(words[i+1], 0xffff))
			p.Quoted.Proto = protocol(words[i-1])
		}
		if strings.HasPrefix(w, "mtu") && i+1 < len(words) {
			p.MTU = int32(number(strings.TrimRight(words[i+1], "),"), 1<<24))
		}
	}
	p.Code = unreachableCode(text)
	return true
}

// unreachableCode tells the code from tcpdump's words (print-icmp.c).
func unreachableCode(text string) uint8 {
	switch {
	case strings.Contains(text, "need to frag"):
		return 4
	case strings.Contains(text, " port "):
		return 3
	case strings.Contains(text, "protocol"):
		return 2
	case strings.Contains(text, "admin prohibited filter"):
		return 13
	case strings.HasPrefix(text, "host") && strings.Contains(text, "admin prohibited"):
		return 10
	case strings.Contains(text, "admin prohibited"):
		return 9
	case strings.HasPrefix(text, "host"):
		return 1
	default:
		return 0
	}
}

func icmp6Content(what string, p *Packet) bool {
	switch {
	case strings.HasPrefix(what, "echo request,"):
		p.Type = 128
		echoContent(what, p, 40)
	case strings.HasPrefix(what, "echo reply,"):
		p.Type = 129
		echoContent(what, p, 40)
	case strings.HasPrefix(what, "destination unreachable"):
		p.Type = 1
		p.Quoted = &Packet{ID: -1}
		switch {
		case strings.Contains(what, "unreachable address"):
			p.Code = 3
		case strings.Contains(what, "unreachable port"):
			p.Code = 4
		case strings.Contains(what, "prohibited"):
			p.Code = 1
		}
		for _, w := range strings.Fields(what) {
			if a, err := netip.ParseAddr(strings.TrimRight(w, ",")); err == nil {
				p.Quoted.Dst = a
			}
		}
	case strings.HasPrefix(what, "packet too big"):
		p.Type = 2
		p.Quoted = &Packet{ID: -1}
		if _, after, ok := strings.Cut(what, "mtu "); ok {
			word, _, _ := strings.Cut(after, ",")
			p.MTU = int32(number(word, 1<<24))
		}
	case strings.HasPrefix(what, "time exceeded"):
		p.Type = 3
		p.Quoted = &Packet{ID: -1}
	default:
		p.Type = 143
	}
	return true
}

// tcpContent reads "Flags [S.], seq 1, ack 2, …". Sequence numbers are absolute with SYN; later ones are
// relative, and told from each other by the identification.
func tcpContent(what string, p *Packet) {
	inside, rest, _ := strings.Cut(what[len("Flags ["):], "]")
	for _, sign := range inside {
		p.flag(string(sign))
	}
	if p.Flags&flagSYN != 0 {
		if _, after, ok := strings.Cut(rest, "seq "); ok {
			word, _, _ := strings.Cut(after, ",")
			p.TCPSeq, p.HasSeq = uint32(number(word, 0xffffffff)), true
		}
	}
	if p.Len == 0 {
		p.Len = length(rest) + 40
	}
}
