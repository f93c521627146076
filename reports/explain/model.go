package explain

import (
	"net/netip"
)

// Stage is a place in a machine at which packets are seen.
type Stage uint8

// The stages, in the order in which a packet passes them. Wire is a device on which somebody captured; the
// others are netfilter's hooks.
const (
	Wire Stage = iota
	PreRouting
	Input
	Forward
	Output
	PostRouting
)

// anyStage is that of a line whose hook does not show; it belongs to the hook around it.
const anyStage Stage = 255

// Time is when something was seen, by the clock of the machine that saw it. Only times of one machine are
// ever compared: the clocks of two may differ by more than a packet needs.
type Time struct {
	// Up is in seconds since boot, as the kernel log has it; negative when not known.
	Up float64
	// Wall is in seconds since midnight; negative when not known.
	Wall float64
	// Day counts days; 0 when not known.
	Day int32
}

// unknown is the Time of what has none.
var unknown = Time{Up: -1, Wall: -1}

// sub is the time from u to t in seconds, by the best clock both have.
func (t Time) sub(u Time) (float64, bool) {
	switch {
	case t.Up >= 0 && u.Up >= 0:
		return t.Up - u.Up, true
	case t.Wall >= 0 && u.Wall >= 0:
		d := t.Wall - u.Wall
		if t.Day != 0 && u.Day != 0 {
			d += float64(t.Day-u.Day) * 86400
		}
		return d, true
	}
	return 0, false
}

func (t Time) after(u Time) bool {
	d, ok := t.sub(u)
	return ok && d > 0
}

// Protocol numbers (IANA).
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// Packet is what a trace says of a packet's headers.
type Packet struct {
	Src, Dst netip.Addr
	// Proto is the IP protocol.
	Proto uint8
	// ID is the IPv4 identification; -1 when not known.
	ID int32
	// TTL is the time to live or hop limit; 0 when not known.
	TTL int16
	// Len is the length of the IP packet in bytes; 0 when not known.
	Len int32
	// SrcPort and DstPort are those of TCP and UDP.
	SrcPort, DstPort uint16
	// Type and Code are ICMP's; EchoID and Seq those of an echo.
	Type, Code  uint8
	EchoID, Seq uint16
	// Flags are TCP's; TCPSeq is its absolute sequence number, where HasSeq.
	Flags  uint8
	TCPSeq uint32
	HasSeq bool
	// MTU is what an ICMP "too big" allows, in bytes.
	MTU int32
	// Quoted is the packet that an ICMP error is about, as far as it is told.
	Quoted *Packet
	// Outer is the VXLAN tunnel in which the packet was seen.
	Outer *Outer
}

// Outer is a VXLAN encapsulation (RFC 7348).
type Outer struct {
	Src, Dst netip.Addr
	VNI      uint32
}

// TCP flags (RFC 9293).
const (
	flagFIN = 1 << iota
	flagSYN
	flagRST
	flagPSH
	flagACK
)

// request and reply tell ICMP echoes of both families.
func (p *Packet) request() bool {
	return p.Proto == protoICMP && p.Type == 8 || p.Proto == protoICMPv6 && p.Type == 128
}

func (p *Packet) reply() bool {
	return p.Proto == protoICMP && p.Type == 0 || p.Proto == protoICMPv6 && p.Type == 129
}

func (p *Packet) echo() bool { return p.request() || p.reply() }

// carrier tells a VXLAN packet whose content the trace does not show: ports of flannel (8472) and IANA
// (4789).
func (p *Packet) carrier() bool { return p.Proto == protoUDP && vxlanPort(p.DstPort) }

func vxlanPort(port uint16) bool { return port == 8472 || port == 4789 }

// housekeeping tells ICMPv6 of the link itself: router and neighbour discovery, multicast listeners.
func (p *Packet) housekeeping() bool {
	return p.Proto == protoICMPv6 && (p.Type >= 130 && p.Type <= 137 || p.Type == 143) || p.Dst.IsMulticast()
}

// Sighting is one line, or one captured frame: a packet at a place.
type Sighting struct {
	Packet
	At    Time
	Stage Stage
	// In and Out are devices, Port the bridge's port by which the packet came. A capture whose direction is not
	// known has its device in Device.
	In, Out, Port, Device string
	// Table, Chain, Kind (rule, return or policy) and Rule are the rule that spoke.
	Table, Chain, Kind, Rule string
	// Drop is the rule that dropped the packet, as nftables prints it.
	Drop string
}

// Ask is an ARP request or reply that was captured.
type Ask struct {
	Device        string
	Asked, Asking netip.Addr
	Reply         bool
	// Sent says that the machine that captured it sent it.
	Sent bool
}
