package follow

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var testMark = [markLength]byte{1, 2, 3, 4, 5, 6, 7, 8}

var (
	hostA = []byte{172, 16, 1, 2}
	hostB = []byte{172, 16, 2, 2}
)

func ethernet(kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{
		SrcMAC: []byte{10, 0, 0, 0, 0, 1}, DstMAC: []byte{10, 0, 0, 0, 0, 2},
		EthernetType: kind,
	}
}

func ipHeader(proto layers.IPProtocol, src, dst []byte) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 63, Protocol: proto, SrcIP: src, DstIP: dst}
}

func echoOf(kind uint8, data []byte) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0), Id: 7, Seq: 1}, gopacket.Payload(data),
	}
}

func build(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(
		b,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		parts...)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// bare is an echo on a wire, and quoted an error that quotes one.
func bare(t *testing.T, kind uint8, data []byte) []byte {
	return build(t, append([]gopacket.SerializableLayer{
		ethernet(layers.EthernetTypeIPv4),
		ipHeader(layers.IPProtocolICMPv4, hostA, hostB),
	}, echoOf(kind, data)...)...)
}

func quoted(t *testing.T, kind, code uint8, data []byte) []byte {
	original := bare(t, 8, data)[14:]
	return build(t, ethernet(layers.EthernetTypeIPv4), ipHeader(layers.IPProtocolICMPv4, hostB, hostA),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code), Seq: 1450}, gopacket.Payload(original))
}

// inVXLAN puts a frame into VXLAN on flannel's port.
func inVXLAN(t *testing.T, inner []byte) []byte {
	outer := ipHeader(layers.IPProtocolUDP, []byte{192, 168, 200, 201}, []byte{192, 168, 200, 202})
	udp := &layers.UDP{SrcPort: 40000, DstPort: 8472}
	if err := udp.SetNetworkLayerForChecksum(outer); err != nil {
		t.Fatal(err)
	}
	return build(t, ethernet(layers.EthernetTypeIPv4), outer, udp, &layers.VXLAN{ValidIDFlag: true, VNI: 1},
		gopacket.Payload(inner))
}

func TestDecodeAndFilter(t *testing.T) {
	other := [markLength]byte{9}
	arp := build(t, ethernet(layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet,
		Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
		SourceHwAddress: []byte{10, 0, 0, 0, 0, 1}, SourceProtAddress: hostA, DstHwAddress: make([]byte, 6),
		DstProtAddress: hostB,
	})
	tcp := build(t, ethernet(layers.EthernetTypeIPv4), ipHeader(layers.IPProtocolTCP, hostA, hostB),
		gopacket.Payload(append(make([]byte, 8), testMark[:]...)))
	for name, c := range map[string]struct {
		frame []byte
		// passes is the filter's answer; the others are what it is then found to be.
		passes, sighting, failure, arp bool
		direction                      string
		vni                            int
	}{
		"request":                 {bare(t, 8, testMark[:]), true, true, false, false, Request, 0},
		"reply":                   {bare(t, 0, testMark[:]), true, true, false, false, Reply, 0},
		"another's echo":          {bare(t, 8, other[:]), false, false, false, false, "", 0},
		"a short echo":            {bare(t, 8, nil), false, false, false, false, "", 0},
		"request in VXLAN":        {inVXLAN(t, bare(t, 8, testMark[:])), true, true, false, false, Request, 1},
		"another's echo in VXLAN": {inVXLAN(t, bare(t, 8, other[:])), false, false, false, false, "", 0},
		"ARP in VXLAN":            {inVXLAN(t, arp), false, false, false, false, "", 0},
		"error":                   {quoted(t, 3, 4, testMark[:]), true, false, true, false, Request, 0},
		"error in VXLAN": {
			inVXLAN(t, quoted(t, 3, 4, testMark[:])), true, false, true, false, Request, 0,
		},
		"error about another echo": {quoted(t, 3, 1, other[:]), true, false, false, false, "", 0},
		"ARP":                      {arp, true, false, false, true, "", 0},
		"TCP":                      {tcp, false, false, false, false, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := passes(t, c.frame); got != c.passes {
				t.Errorf("the filter says %t", got)
			}
			got := decode(frame{place: "node01", device: "eth0", data: c.frame}, testMark)
			if (got.sighting != nil) != c.sighting || (got.failure != nil) != c.failure || (got.arp != nil) != c.arp {
				t.Fatalf("found %+v", got)
			}
			if s := got.sighting; s != nil {
				tunnelled := s.Tunnel != nil && s.Tunnel.VNI == c.vni && s.Tunnel.Port == 8472 &&
					s.Tunnel.Dst == netip.MustParseAddr("192.168.200.202")
				if s.Direction != c.direction || s.TTL != 63 || s.Length != 36 || tunnelled != (c.vni > 0) {
					t.Errorf("%+v", s)
				}
			}
			if e := got.failure; e != nil && (e.MTU != 1450 || e.Code != 4 || e.Direction != c.direction) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// passes runs the filter outside the kernel. There the protocol comes from the kernel and not from the
// frame, so its load is replaced.
func passes(t *testing.T, data []byte) bool {
	t.Helper()
	program := filter(testMark)
	program[0] = bpf.LoadAbsolute{Off: 12, Size: 2}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// FuzzDecode: nothing on a wire may stop the one who watches it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, data []byte) { decode(frame{data: data}, testMark) })
}

func TestParseTrace(t *testing.T) {
	ip := make([]byte, 20)
	ip[9] = unix.IPPROTO_ICMP
	copy(ip[12:], hostA)
	encode := func(kind, verdict, policy uint32, icmp byte) []byte {
		e := netlink.NewAttributeEncoder()
		e.ByteOrder = binary.BigEndian
		e.String(unix.NFTA_TRACE_TABLE, "filter")
		e.String(unix.NFTA_TRACE_CHAIN, "FORWARD")
		e.Uint64(unix.NFTA_TRACE_RULE_HANDLE, 7)
		e.Uint32(unix.NFTA_TRACE_TYPE, kind)
		e.Uint32(unix.NFTA_TRACE_ID, 99)
		e.Uint32(unix.NFTA_TRACE_POLICY, policy)
		e.Bytes(unix.NFTA_TRACE_NETWORK_HEADER, ip)
		e.Bytes(unix.NFTA_TRACE_TRANSPORT_HEADER, []byte{icmp, 0})
		e.Nested(unix.NFTA_TRACE_VERDICT, func(n *netlink.AttributeEncoder) error {
			n.Uint32(unix.NFTA_VERDICT_CODE, verdict)
			return nil
		})
		raw, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{unix.NFPROTO_IPV4, 0, 0, 0}, raw...)
	}
	const drop, accept = 0, 1
	for name, c := range map[string]struct {
		message   []byte
		drop      bool
		handle    uint64
		direction string
	}{
		"rule drops":     {encode(unix.NFT_TRACETYPE_RULE, drop, accept, 8), true, 7, Request},
		"rule accepts":   {encode(unix.NFT_TRACETYPE_RULE, accept, drop, 0), false, 7, Reply},
		"policy drops":   {encode(unix.NFT_TRACETYPE_POLICY, accept, drop, 8), true, 0, Request},
		"policy accepts": {encode(unix.NFT_TRACETYPE_POLICY, drop, accept, 8), false, 0, Request},
	} {
		t.Run(name, func(t *testing.T) {
			v, id, h, err := parseTrace(c.message)
			if err != nil || id != 99 || v.Family != "ip" || v.Table != "filter" || v.Chain != "FORWARD" {
				t.Fatalf("%+v, %d, %v", v, id, err)
			}
			if v.Drop != c.drop || v.Handle != c.handle || h.direction != c.direction || h.inTunnel {
				t.Errorf("%+v, %+v", v, h)
			}
		})
	}
	if _, _, _, err := parseTrace([]byte{1}); err == nil {
		t.Error("a message without its header was read")
	}
}

func TestParseFormat(t *testing.T) {
	const text = "name: kfree_skb\nID: 2310\nformat:\n" +
		"\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n" +
		"\tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;\n" +
		"\tfield:enum skb_drop_reason reason;\toffset:36;\tsize:4;\tsigned:0;\n\n" +
		`print fmt: "reason: %s", __print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 12, ` +
		`"NETFILTER_DROP" })` +
		"\n"
	got, err := parseFormat(text)
	if err != nil || got.id != 2310 || got.names[12] != "NETFILTER_DROP" ||
		got.fields["reason"] != (field{36, 4}) ||
		got.fields["skbaddr"] != (field{8, 8}) {
		t.Errorf("%+v, %v", got, err)
	}
	raw := make([]byte, 40)
	raw[8], raw[36] = 5, 12
	if got.value(raw, "skbaddr") != 5 || got.value(raw, "reason") != 12 || got.value(raw[:20], "reason") != 0 {
		t.Errorf("values of %v", raw)
	}
	for _, bad := range []string{"", "ID: 3\n"} {
		if _, err := parseFormat(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
