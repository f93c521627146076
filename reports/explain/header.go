package explain

import (
	"net/netip"
	"strconv"
	"strings"
)

// part is a field of a packet's headers, by whatever name a tool prints it.
type part int

const (
	_ part = iota // one that does not matter
	partSrc
	partDst
	partLen
	partTTL
	partID
	partProto
	partEchoID
	partSeq
	partTCPSeq
	partType
	partCode
	partSrcPort
	partDstPort
	partMTU
)

// set takes over a field as tools print it: addresses, numbers in decimal, protocols by name or number.
func (p *Packet) set(what part, value string) {
	switch what {
	case partSrc:
		p.Src, _ = netip.ParseAddr(value)
	case partDst:
		p.Dst, _ = netip.ParseAddr(value)
	case partLen:
		p.Len = int32(number(value, 1<<24))
	case partTTL:
		p.TTL = int16(number(value, 255))
	case partID:
		p.ID = int32(number(value, 0xffff))
	case partProto:
		p.Proto = protocol(value)
	case partEchoID:
		p.EchoID = uint16(number(value, 0xffff))
	case partSeq:
		p.Seq = uint16(number(value, 0xffff))
	case partTCPSeq:
		p.TCPSeq, p.HasSeq = uint32(number(value, 0xffffffff)), true
	case partType:
		p.Type = uint8(number(value, 255))
	case partCode:
		p.Code = uint8(number(value, 255))
	case partSrcPort:
		p.SrcPort = uint16(number(value, 0xffff))
	case partDstPort:
		p.DstPort = uint16(number(value, 0xffff))
	case partMTU:
		p.MTU = int32(number(value, 1<<24))
	}
}

// flag takes over a flag of TCP, by its name or by tcpdump's sign for it.
func (p *Packet) flag(name string) {
	switch name {
	case "SYN", "S":
		p.Flags |= flagSYN
	case "ACK", ".":
		p.Flags |= flagACK
	case "RST", "R":
		p.Flags |= flagRST
	case "FIN", "F":
		p.Flags |= flagFIN
	case "PSH", "P":
		p.Flags |= flagPSH
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
