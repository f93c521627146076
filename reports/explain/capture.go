package explain

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// captureSource is what pcapgo's two readers have in common.
type captureSource interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// maxFrame is how long a captured frame may be, in bytes, where a pcap does not say so. Wireshark's limit
// is the same.
const maxFrame = 256 << 10

// readCapture reads a pcap or pcapng file. One that is cut off counts as far as it goes.
func (e *Explainer) readCapture(name string, where origin, br *bufio.Reader) (err error) {
	// pcapgo and the decoders check lengths, but what they read comes from strangers.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is damaged (%v): %w", name, p, ErrNotTrace)
		}
	}()
	source, linkOf, err := openCapture(br)
	if err != nil {
		return fmt.Errorf("%s begins like a pcap, but cannot be read as one (%w): %w", name, err, ErrNotTrace)
	}
	frames := 0
	for {
		data, info, err := source.ReadPacketData()
		if err != nil {
			if frames > 0 || errors.Is(err, io.EOF) {
				break
			}
			return fmt.Errorf("%s has no whole packet (%w): %w", name, err, ErrNotTrace)
		}
		frames++
		link, device := linkOf(info.InterfaceIndex)
		host, dev := splitDevice(device)
		if dev == "" && link != layers.LinkTypeLinuxSLL && link != layers.LinkTypeLinuxSLL2 {
			dev = deviceOf(name)
		}
		here := where
		if host != "" {
			here = origin{host: e.follow.host(host, false)}
		}
		e.frame(here, link, dev, data, info)
	}
	if frames == 0 {
		return fmt.Errorf("%s is a capture without a packet: %w", name, ErrNotTrace)
	}
	return nil
}

// splitDevice reads an interface's name. Where several machines are captured into one file, the machine
// stands before the device: "node04 flannel.1", "node04/flannel.1" or "node04:flannel.1".
func splitDevice(name string) (host, device string) {
	if i := strings.IndexAny(name, " /:"); i > 0 && isHostName(name[:i]) {
		return name[:i], name[i+1:]
	}
	return "", name
}

func openCapture(br *bufio.Reader) (captureSource, func(int) (layers.LinkType, string), error) {
	head, err := br.Peek(4)
	if err != nil {
		return nil, nil, err
	}
	if binary.BigEndian.Uint32(head) != magicNg {
		r, err := pcapgo.NewReader(br)
		if err != nil {
			return nil, nil, err
		}
		if r.Snaplen() == 0 || r.Snaplen() > maxFrame {
			r.SetSnaplen(maxFrame)
		}
		return r, func(int) (layers.LinkType, string) { return r.LinkType(), "" }, nil
	}
	r, err := pcapgo.NewNgReader(br, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		return nil, nil, err
	}
	return r, func(i int) (layers.LinkType, string) {
		face, err := r.Interface(i)
		if err != nil {
			return layers.LinkTypeEthernet, ""
		}
		return face.LinkType, face.Name
	}, nil
}

// frame decodes one captured frame down to its innermost packet.
func (e *Explainer) frame(
	where origin, link layers.LinkType, device string, data []byte, info gopacket.CaptureInfo,
) {
	at := Time{Up: -1}
	utc := info.Timestamp.UTC()
	at.Day = int32(utc.Unix() / 86400)
	at.Wall = utc.Sub(utc.Truncate(24 * time.Hour)).Seconds()
	s := Sighting{At: at, Stage: Wire, Device: device}
	s.ID = -1
	p := gopacket.NewPacket(data, link, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	if sll, ok := p.Layer(layers.LayerTypeLinuxSLL).(*layers.LinuxSLL); ok {
		direction(&s, device, sll.PacketType)
	}
	if sll, ok := p.Layer(layers.LayerTypeLinuxSLL2).(*layers.LinuxSLL2); ok {
		if device == "" {
			device = fmt.Sprintf("interface %d", sll.InterfaceIndex)
		}
		s.Device = device
		direction(&s, device, layers.LinuxSLLPacketType(sll.PacketType))
	}
	e.decoded(where, p, &s)
}

// direction takes over what a "cooked" capture says of the way a frame went.
func direction(s *Sighting, device string, kind layers.LinuxSLLPacketType) {
	s.Device = ""
	if kind == layers.LinuxSLLPacketTypeOutgoing {
		s.Out = device
	} else {
		s.In = device
	}
}

func (e *Explainer) decoded(where origin, p gopacket.Packet, s *Sighting) {
	if arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		asked, ok1 := netip.AddrFromSlice(arp.DstProtAddress)
		asking, ok2 := netip.AddrFromSlice(arp.SourceProtAddress)
		dev := s.Device + s.In + s.Out
		switch {
		case !ok1 || !ok2:
		case arp.Operation == layers.ARPRequest:
			e.follow.ask(where, Ask{Device: dev, Asked: asked, Asking: asking, Sent: s.Out != ""})
		case arp.Operation == layers.ARPReply:
			e.follow.ask(where, Ask{Device: dev, Asked: asking, Reply: true})
		}
		return
	}
	if !headers(p, &s.Packet) {
		return
	}
	if s.carrier() {
		if inner, vni, ok := vxlanContent(p); ok {
			outer := &Outer{Src: s.Src, Dst: s.Dst, VNI: vni}
			s.Packet = Packet{ID: -1, Outer: outer}
			e.decoded(where, inner, s)
			return
		}
	}
	e.follow.see(where, s)
}

// vxlanContent decodes the frame in a VXLAN packet, on any port.
func vxlanContent(p gopacket.Packet) (gopacket.Packet, uint32, bool) {
	udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || len(udp.Payload) < 8+14 {
		return nil, 0, false
	}
	vni := binary.BigEndian.Uint32(udp.Payload[4:8]) >> 8
	inner := gopacket.NewPacket(udp.Payload[8:], layers.LayerTypeEthernet,
		gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	return inner, vni, true
}

// headers reads the network and transport headers; false where there is no IP.
func headers(p gopacket.Packet, out *Packet) bool {
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		src, _ := netip.AddrFromSlice(ip.SrcIP)
		dst, _ := netip.AddrFromSlice(ip.DstIP)
		out.Src, out.Dst, out.Proto = src, dst, uint8(ip.Protocol)
		out.ID, out.TTL, out.Len = int32(ip.Id), int16(ip.TTL), int32(ip.Length)
	case *layers.IPv6:
		src, _ := netip.AddrFromSlice(ip.SrcIP)
		dst, _ := netip.AddrFromSlice(ip.DstIP)
		out.Src, out.Dst, out.Proto = src, dst, uint8(ip.NextHeader)
		out.TTL, out.Len = int16(ip.HopLimit), int32(ip.Length)+40
	default:
		return false
	}
	if !out.Src.IsValid() || !out.Dst.IsValid() {
		return false
	}
	transport(p, out)
	return true
}

func transport(p gopacket.Packet, out *Packet) {
	if icmp, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
		out.Type, out.Code = icmp.TypeCode.Type(), icmp.TypeCode.Code()
		if out.echo() {
			out.EchoID, out.Seq = icmp.Id, icmp.Seq
		}
		if isError(out) {
			out.MTU = int32(icmp.Seq)
			out.Quoted = quoted(icmp.Payload, layers.LayerTypeIPv4)
		}
		return
	}
	if icmp, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		out.Proto = protoICMPv6
		out.Type, out.Code = icmp.TypeCode.Type(), icmp.TypeCode.Code()
		if out.echo() && len(icmp.Payload) >= 4 {
			out.EchoID = binary.BigEndian.Uint16(icmp.Payload)
			out.Seq = binary.BigEndian.Uint16(icmp.Payload[2:])
		}
		if isError(out) && len(icmp.Payload) >= 4 {
			out.MTU = int32(min(binary.BigEndian.Uint32(icmp.Payload), 1<<24))
			out.Quoted = quoted(icmp.Payload[4:], layers.LayerTypeIPv6)
		}
		return
	}
	if tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
		out.SrcPort, out.DstPort = uint16(tcp.SrcPort), uint16(tcp.DstPort)
		out.TCPSeq, out.HasSeq = tcp.Seq, true
		for _, f := range []struct {
			set  bool
			flag uint8
		}{{tcp.SYN, flagSYN}, {tcp.ACK, flagACK}, {tcp.FIN, flagFIN}, {tcp.RST, flagRST}, {tcp.PSH, flagPSH}} {
			if f.set {
				out.Flags |= f.flag
			}
		}
		return
	}
	if udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP); ok {
		out.SrcPort, out.DstPort = uint16(udp.SrcPort), uint16(udp.DstPort)
	}
}

// quoted decodes the packet inside an ICMP error. It is cut off after some bytes, which is no mistake of
// its own.
func quoted(raw []byte, first gopacket.LayerType) *Packet {
	q := &Packet{ID: -1}
	p := gopacket.NewPacket(raw, first, gopacket.DecodeOptions{NoCopy: true})
	if headers(p, q) {
		quotedTransport(raw, q)
		return q
	}
	if len(raw) < 20 || raw[0]>>4 != 4 {
		return q
	}
	// The quoted header says a length that the quote does not have, which the decoder may refuse.
	src, dst := netip.AddrFrom4([4]byte(raw[12:16])), netip.AddrFrom4([4]byte(raw[16:20]))
	q.Src, q.Dst, q.Proto, q.TTL = src, dst, raw[9], int16(raw[8])
	q.Len, q.ID = int32(binary.BigEndian.Uint16(raw[2:])), int32(binary.BigEndian.Uint16(raw[4:]))
	quotedTransport(raw, q)
	return q
}

// quotedTransport reads the eight bytes that every error quotes at least (RFC 792).
func quotedTransport(raw []byte, q *Packet) {
	if len(raw) == 0 {
		return
	}
	at := 40
	if raw[0]>>4 == 4 {
		at = int(raw[0]&15) * 4
	}
	if len(raw) < at+8 {
		return
	}
	t := raw[at:]
	switch q.Proto {
	case protoICMP, protoICMPv6:
		q.Type, q.Code = t[0], t[1]
		if q.echo() {
			q.EchoID, q.Seq = binary.BigEndian.Uint16(t[4:]), binary.BigEndian.Uint16(t[6:])
		}
	case protoTCP, protoUDP:
		q.SrcPort, q.DstPort = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
		if q.Proto == protoTCP {
			q.TCPSeq, q.HasSeq = binary.BigEndian.Uint32(t[4:]), true
		}
	}
}
