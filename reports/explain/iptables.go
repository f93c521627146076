package explain

import (
	"net/netip"
	"strconv"
	"strings"
)

// hooks are the built-in chains, which are named like netfilter's hooks.
var hooks = map[string]Stage{
	"PREROUTING": PreRouting, "INPUT": Input, "FORWARD": Forward, "OUTPUT": Output, "POSTROUTING": PostRouting,
}

// parseTrace reads a line that the TRACE target wrote to the kernel log (net/ipv4/netfilter/ip_tables.c,
// trace_packet; the packet by net/netfilter/nf_log_syslog.c):
//
//	TRACE: raw:PREROUTING:policy:2 IN=cni0 OUT= MAC=… SRC=172.16.0.7 DST=172.16.3.12 LEN=84 … PROTO=ICMP …
//
// The host is empty where the line does not name it.
func (c *clock) parseTrace(line string) (s Sighting, host string, ok bool) {
	i := strings.Index(line, "TRACE: ")
	if i < 0 {
		return s, "", false
	}
	rest := line[i+len("TRACE: "):]
	position, rest, ok := strings.Cut(rest, " ")
	if !ok {
		return s, "", false
	}
	parts := strings.Split(position, ":")
	if len(parts) < 4 {
		return s, "", false
	}
	n := len(parts)
	s.Table, s.Kind, s.Rule = parts[0], parts[n-2], parts[n-1]
	s.Chain = strings.Join(parts[1:n-2], ":")
	outside, quoted := rest, ""
	if open := strings.Index(rest, "[SRC="); open >= 0 {
		outside = rest[:open]
		inside, after, closed := strings.Cut(rest[open+1:], "]")
		quoted = inside
		if closed {
			outside += after
		}
	}
	s.ID = -1
	fields(outside, &s)
	if !s.Src.IsValid() || !s.Dst.IsValid() {
		return s, "", false
	}
	if quoted != "" {
		inner := Sighting{}
		inner.ID = -1
		fields(quoted, &inner)
		if inner.Src.IsValid() && inner.Dst.IsValid() {
			s.Quoted = &inner.Packet
		}
	}
	s.Stage = stageOf(&s)
	host, s.At = c.prefix(line[:i])
	return s, host, true
}

// stageOf is the hook: named by a built-in chain; in a chain of the operator's it shows in the devices.
// With both devices it is the way through; with one, the table may tell.
func stageOf(s *Sighting) Stage {
	if stage, ok := hooks[s.Chain]; ok {
		return stage
	}
	switch {
	case s.In != "" && s.Out != "":
		return Forward
	case s.In != "" && s.Table == "filter":
		return Input
	case s.In != "" && s.Table == "raw":
		return PreRouting
	case s.In == "" && (s.Table == "filter" || s.Table == "raw"):
		return Output
	}
	// Chains of the operator's in nat and mangle are called from both hooks.
	return anyStage
}

// fields reads KEY=value words.
func fields(rest string, s *Sighting) {
	proto := false
	for rest != "" {
		word := rest
		if i := strings.IndexByte(rest, ' '); i >= 0 {
			word, rest = rest[:i], rest[i+1:]
		} else {
			rest = ""
		}
		eq := strings.IndexByte(word, '=')
		if eq < 0 {
			flag(word, s)
			continue
		}
		key, value := word[:eq], word[eq+1:]
		switch key {
		case "IN":
			s.In = value
		case "OUT":
			s.Out = value
		case "PHYSIN":
			s.Port = value
		case "SRC":
			s.Src, _ = netip.ParseAddr(value)
		case "DST":
			s.Dst, _ = netip.ParseAddr(value)
		case "LEN":
			if !proto {
				s.Len = int32(number(value, 1<<24))
			}
		case "TTL", "HOPLIMIT":
			s.TTL = int16(number(value, 255))
		case "PROTO":
			proto = true
			s.Proto = protocol(value)
		case "ID":
			if proto {
				s.EchoID = uint16(number(value, 0xffff))
			} else {
				s.ID = int32(number(value, 0xffff))
			}
		case "SEQ":
			sequence(value, s)
		case "TYPE":
			s.Type = uint8(number(value, 255))
		case "CODE":
			s.Code = uint8(number(value, 255))
		case "SPT":
			s.SrcPort = uint16(number(value, 0xffff))
		case "DPT":
			s.DstPort = uint16(number(value, 0xffff))
		case "MTU":
			s.MTU = int32(number(value, 1<<24))
		}
	}
}

func sequence(value string, s *Sighting) {
	if s.Proto == protoTCP {
		s.TCPSeq, s.HasSeq = uint32(number(value, 0xffffffff)), true
		return
	}
	s.Seq = uint16(number(value, 0xffff))
}

func flag(word string, s *Sighting) {
	switch word {
	case "SYN":
		s.Flags |= flagSYN
	case "ACK":
		s.Flags |= flagACK
	case "RST":
		s.Flags |= flagRST
	case "FIN":
		s.Flags |= flagFIN
	case "PSH":
		s.Flags |= flagPSH
	}
}

// number reads a decimal; what is none, or too large, counts as 0, as everything else that is not known.
func number(s string, most uint64) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most {
		return 0
	}
	return n
}

func protocol(s string) uint8 {
	switch strings.ToLower(s) {
	case "icmp":
		return protoICMP
	case "tcp":
		return protoTCP
	case "udp":
		return protoUDP
	case "icmpv6", "icmp6", "ipv6-icmp":
		return protoICMPv6
	}
	return uint8(number(s, 255))
}
