package follow

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// markLength is the length of the mark, the first bytes of the echo's data.
const markLength = 8

// frame is a captured frame and where it was captured.
type frame struct {
	place, device  string
	at             time.Time
	out, otherHost bool
	data           []byte
}

// found is what a frame turned out to be; at most one is set.
type found struct {
	sighting *Sighting
	failure  *ICMPError
	arp      *ARP
}

// decode reads a frame. Frames that have nothing to do with the mark give nothing.
func decode(f frame, mark [markLength]byte) found {
	p := gopacket.NewPacket(f.data, layers.LayerTypeEthernet, gopacket.NoCopy)
	if a, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		return found{arp: readARP(f, a)}
	}
	if udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP); ok {
		outer, isIP := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if !isIP {
			return found{}
		}
		// gopacket takes UDP for VXLAN on IANA's port only; this one is whatever the network says.
		inner := gopacket.NewPacket(udp.Payload, layers.LayerTypeVXLAN, gopacket.NoCopy)
		vxlan, isVXLAN := inner.Layer(layers.LayerTypeVXLAN).(*layers.VXLAN)
		if !isVXLAN {
			return found{}
		}
		return readICMP(f, inner, mark, &Tunnel{
			Src: address(outer.SrcIP), Dst: address(outer.DstIP), Port: int(udp.DstPort), VNI: int(vxlan.VNI),
		})
	}
	return readICMP(f, p, mark, nil)
}

func readARP(f frame, a *layers.ARP) *ARP {
	if a.Protocol != layers.EthernetTypeIPv4 {
		return nil
	}
	return &ARP{
		At: f.at, Place: f.place, Device: f.device, Out: f.out, Request: a.Operation == layers.ARPRequest,
		Sender: address(a.SourceProtAddress), Target: address(a.DstProtAddress),
	}
}

// readICMP reads an echo, or an error that quotes one.
func readICMP(f frame, p gopacket.Packet, mark [markLength]byte, tunnel *Tunnel) found {
	ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	icmp, ok2 := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	if !ok || !ok2 {
		return found{}
	}
	if direction, ok := echo(icmp, mark); ok {
		s := &Sighting{
			Place: f.place, Device: f.device, At: f.at, Out: f.out, OtherHost: f.otherHost, Direction: direction,
			Src: address(ip.SrcIP), Dst: address(ip.DstIP), TTL: int(ip.TTL), Length: int(ip.Length),
			Tunnel: tunnel, Frame: f.data,
		}
		if eth, ok := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet); ok {
			s.SrcMAC, s.DstMAC = eth.SrcMAC.String(), eth.DstMAC.String()
		}
		return found{sighting: s}
	}
	switch icmp.TypeCode.Type() {
	case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded,
		layers.ICMPv4TypeParameterProblem, layers.ICMPv4TypeRedirect:
	default:
		return found{}
	}
	// The quoted packet is cut off, which gopacket reports beside the layers that it could read.
	quoted := gopacket.NewPacket(icmp.Payload, layers.LayerTypeIPv4, gopacket.NoCopy)
	original, ok := quoted.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	if !ok {
		return found{}
	}
	direction, ok := echo(original, mark)
	if !ok {
		return found{}
	}
	e := &ICMPError{
		At: f.at, Place: f.place, Device: f.device, Reporter: address(ip.SrcIP), Target: address(ip.DstIP),
		Type: int(icmp.TypeCode.Type()), Code: int(icmp.TypeCode.Code()), Direction: direction,
	}
	if e.Type == layers.ICMPv4TypeDestinationUnreachable && e.Code == layers.ICMPv4CodeFragmentationNeeded {
		e.MTU = int(icmp.Seq) // RFC 1191 puts it where an echo has its sequence number
	}
	return found{failure: e}
}

// echo tells whether an ICMP message is the marked request or its reply.
func echo(icmp *layers.ICMPv4, mark [markLength]byte) (string, bool) {
	if !bytes.HasPrefix(icmp.Payload, mark[:]) {
		return "", false
	}
	switch icmp.TypeCode.Type() {
	case layers.ICMPv4TypeEchoRequest:
		return Request, true
	case layers.ICMPv4TypeEchoReply:
		return Reply, true
	}
	return "", false
}

func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}
