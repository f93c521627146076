package explain

import (
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

// keys are the words of a line of the TRACE target, and what they say.
var keys = map[string]part{
	"SRC": partSrc, "DST": partDst, "LEN": partLen, "TTL": partTTL, "HOPLIMIT": partTTL, "PROTO": partProto,
	"ID": partID, "SEQ": partSeq, "TYPE": partType, "CODE": partCode, "SPT": partSrcPort, "DPT": partDstPort,
	"MTU": partMTU,
}

// fields reads KEY=value words.
func fields(rest string, s *Sighting) {
	transport := false // the transport's own fields follow
	for rest != "" {
		var word string
		word, rest, _ = strings.Cut(rest, " ")
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			s.flag(word)
			continue
		}
		switch key {
		case "IN":
			s.In = value
			continue
		case "OUT":
			s.Out = value
			continue
		case "PHYSIN":
			s.Port = value
			continue
		}
		p := keys[key]
		switch {
		case p == partLen && transport: // UDP's own
			continue
		case p == partID && transport:
			p = partEchoID
		case p == partSeq && s.Proto == protoTCP:
			p = partTCPSeq
		case p == partProto:
			transport = true
		}
		s.set(p, value)
	}
}
