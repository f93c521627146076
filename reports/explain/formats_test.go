package explain

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// TestRules reads what real machines printed: one with an nftables rule against replies, its pods behind
// cni0 and cni1, a destination that does not exist, a closed port (testdata/rules, made in a network
// namespace).
func TestRules(t *testing.T) {
	const dropped = "both alike: the request was delivered to the pod behind cni1 on node04, and its reply " +
		"was dropped on " +
		"node04 by rule “ip saddr 172.16.4.7 icmp type echo-reply counter drop comment \"no replies\"” in chain " +
		"FORWARD of table ip filter."
	a := explained(t, "testdata/rules/node04-nft-trace.txt", "testdata/rules/node04-neigh.txt")
	for flow, want := range map[string]string{
		"172.16.3.12 → 172.16.4.7 ": dropped,
		"172.16.3.12 → 172.16.3.1 ": "both alike: the request was dropped on node04 by the policy of chain " +
			"INPUT of table ip filter.",
		"172.16.3.12 → 172.16.4.9 ": "both alike: the request was handed to the pods' side of node04 by cni1, " +
			"and no " +
			"reply was seen: neighbour 172.16.4.9 on cni1 of node04 is FAILED.",
		"172.16.3.12:56466 → 172.16.4.7:5353 ": "the packet was delivered to the pod behind cni1 on node04, " +
			"and no " +
			"answer was seen; 172.16.4.7 told 172.16.3.12 “port unreachable” (ICMP type 3 code 3), which means " +
			"that " +
			"nothing listens there, or a REJECT rule answered.",
	} {
		if got := sentence(t, a, flow); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", flow, got, want)
		}
	}
	if !strings.HasPrefix(a.Findings[0].Flow, "172.16.3.12 → 172.16.4.7 ") {
		t.Errorf("first: %s", a.Findings[0].Flow)
	}
	// The rule is known from nftables, and the same packets from a capture on the same machine.
	a = explained(t, "testdata/rules/node04-nft-trace.txt", "testdata/rules/node04-cni0.pcap",
		"testdata/rules/node04-cni1-tcpdump.txt", "testdata/rules/node04-any-tcpdump.txt")
	if got := sentence(t, a, "172.16.3.12 → 172.16.4.7 "); got != dropped {
		t.Errorf("with captures: %s", got)
	}
	if len(a.Machines) != 1 {
		t.Errorf("machines: %v", a.Machines)
	}
}

// TestDump reads tcpdump's text with -v, with -e, and on all devices.
func TestDump(t *testing.T) {
	for _, tc := range []struct{ file, flow, want string }{
		{
			"rules/node04-cni0-tcpdump.txt", "172.16.3.12 → 172.16.4.9 ",
			"3.1 s later 172.16.3.1 told 172.16.3.12 “host unreachable” (ICMP type 3 code 1, 2 times)",
		},
		{"rules/node04-cni0-tcpdump.txt", "172.16.3.12:56466 → 172.16.4.7:5353 ", "“port unreachable”"},
		{
			"rules/node04-cni1-tcpdump.txt", "172.16.3.12 → 172.16.4.7 ",
			"both alike: the request was seen on cni1 of node04, and its reply was seen on cni1 of node04.",
		},
		{"rules/node04-cni1-tcpdump.txt", "172.16.3.12:50060 → 172.16.4.7:81 ", "which is a reset"},
		{
			"rules/node04-any-tcpdump.txt", "172.16.3.12 → 172.16.4.7 ",
			"and its reply came in on node04 by cni1 and was not captured leaving",
		},
		{
			"rules/node04-any-tcpdump.txt", "172.16.3.12 → 172.16.4.9 ",
			"node04 knows no neighbour 172.16.4.9 on cni1 (3 who-has were not answered)",
		},
		{
			"rules/node04-cni0.pcap", "172.16.3.12 → 172.16.4.9 ",
			"3.1 s later 172.16.3.1 told 172.16.3.12 “host unreachable” (ICMP type 3 code 1, 2 times)",
		},
		{
			"vxlan/node04-eth0-tcpdump.txt", "172.16.0.0 → 172.16.3.0 ",
			"(VXLAN from 192.168.200.201 to 192.168.200.204)",
		},
	} {
		if got := sentence(t, explained(t, "testdata/"+tc.file), tc.flow); !strings.Contains(got, tc.want) {
			t.Errorf("%s, %s: got\n%s\nwant\n%s", tc.file, tc.flow, got, tc.want)
		}
	}
}

// TestTunnel follows packets through VXLAN, on flannel's port, from captures on both machines. On node04 the
// neighbour that the reply needs is missing, as in flannel#636 (testdata/vxlan, made in network namespaces).
func TestTunnel(t *testing.T) {
	listings := []string{
		"testdata/vxlan/node04-neigh.txt", "testdata/vxlan/node04-route.txt", "testdata/vxlan/node04-fdb.txt",
	}
	for _, there := range []string{"node04-any-tcpdump.txt", "node04-any.pcap"} {
		files := append([]string{"testdata/vxlan/node01-eth0.pcap", "testdata/vxlan/" + there}, listings...)
		a := explained(t, files...)
		if len(a.Findings) != 1 {
			t.Fatalf("%s", a.Text(0))
		}
		got := a.Findings[0].Sentence
		for _, want := range []string{
			"both alike: the request was delivered to node04 itself, and no reply was seen: " +
				"neighbour 172.16.0.0 on flannel.1 of node04 is FAILED",
			"node04 told itself “host unreachable” (ICMP type 3 code 1",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: want %q in\n%s", there, want, got)
			}
		}
		path := a.Findings[0].Paths[0]
		if !strings.HasPrefix(path, "request  node01: on eth0 (VXLAN 1, 192.168.200.201 → 192.168.200.204)  | "+
			" node04: in by ") {
			t.Errorf("%s: path %s", there, path)
		}
	}
}

// frame is an Ethernet frame with an echo in it, perhaps inside VXLAN.
func frame(
	t *testing.T, src, dst string, kind uint8, seq uint16, ttl uint8, length int, tunnel ...string,
) []byte {
	t.Helper()
	mac := []byte{2, 0, 0, 0, 0, 1}
	eth := &layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{
		Version: 4, TTL: ttl, Id: 100 + seq, Protocol: layers.IPProtocolICMPv4,
		SrcIP: address(src), DstIP: address(dst),
	}
	icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0), Id: 7, Seq: seq}
	raw := serialised(t, eth, ip, icmp, gopacket.Payload(make([]byte, length-28)))
	if len(tunnel) == 0 {
		return raw
	}
	outer := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: address(tunnel[0]), DstIP: address(tunnel[1]),
	}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 8472}
	_ = udp.SetNetworkLayerForChecksum(outer)
	return serialised(t, eth, outer, udp, gopacket.Payload(append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, raw...)))
}

func address(s string) []byte {
	p := bytes.Split([]byte(s), []byte("."))
	var out []byte
	for _, b := range p {
		out = append(out, byte(number(string(b), 255)))
	}
	return out
}

func serialised(t *testing.T, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, options, all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// hop is a frame on a named interface of a pcapng.
type hop struct {
	device string
	frame  []byte
}

// capture writes a pcapng with an interface for each device.
func capture(t *testing.T, hops ...hop) []byte {
	t.Helper()
	var b bytes.Buffer
	var w *pcapgo.NgWriter
	index := map[string]int{}
	at := time.Date(2018, 3, 12, 17, 21, 14, 0, time.UTC)
	for _, h := range hops {
		face := pcapgo.NgInterface{Name: h.device, LinkType: layers.LinkTypeEthernet, SnapLength: 0}
		var err error
		i, known := index[h.device]
		switch {
		case w == nil:
			w, err = pcapgo.NewNgWriterInterface(&b, face, pcapgo.DefaultNgWriterOptions)
		case !known:
			i, err = w.AddInterface(face)
		}
		if err != nil {
			t.Fatal(err)
		}
		index[h.device] = i
		at = at.Add(time.Millisecond)
		info := gopacket.CaptureInfo{
			Timestamp: at, CaptureLength: len(h.frame), Length: len(h.frame), InterfaceIndex: i,
		}
		if err := w.WritePacket(info, h.frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHops reads a pcapng with an interface per hop, named after machine and device, of a reply that is
// sent to a machine that no longer has the subnet.
func TestHops(t *testing.T) {
	const a, b = "172.16.0.7", "172.16.3.12"
	const vtepA, vtepB, wrong = "192.168.200.201", "192.168.200.204", "192.168.200.203"
	raw := capture(t,
		hop{"node01 cni0", frame(t, a, b, 8, 1, 64, 84)},
		hop{"node01 flannel.1", frame(t, a, b, 8, 1, 63, 84)},
		hop{"node01 eth0", frame(t, a, b, 8, 1, 63, 84, vtepA, vtepB)},
		hop{"node04 eth0", frame(t, a, b, 8, 1, 63, 84, vtepA, vtepB)},
		hop{"node04 flannel.1", frame(t, a, b, 8, 1, 63, 84)},
		hop{"node04 cni0", frame(t, a, b, 8, 1, 62, 84)},
		hop{"node04 cni0", frame(t, b, a, 0, 1, 64, 84)},
		hop{"node04 flannel.1", frame(t, b, a, 0, 1, 63, 84)},
		hop{"node04 eth0", frame(t, b, a, 0, 1, 63, 84, vtepB, wrong)},
	)
	e := New()
	if err := e.Read("hops.pcapng", bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	got := sentence(t, answered(t, e), a)
	want := "the request was delivered to the pod behind cni0 on node04, and its reply was routed from " +
		"cni0 to flannel.1 on " +
		"node04 (VXLAN to 192.168.200.203) and never seen on node01; node01 is at 192.168.200.201."
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Cut anywhere, what there is counts; nothing panics.
	for n := range raw {
		err := New().Read("cut.pcapng", bytes.NewReader(raw[:n]))
		if n > len(raw)/2 && err != nil {
			t.Fatalf("cut at %d of %d: %v", n, len(raw), err)
		}
	}
}

// TestLongOnesLost has an MTU's pattern: what is long does not arrive.
func TestLongOnesLost(t *testing.T) {
	var hops []hop
	for seq := range uint16(6) {
		length := 84
		if seq%3 == 2 {
			length = 1500
		}
		hops = append(hops, hop{"node01 cni0", frame(t, "10.0.1.2", "10.0.2.2", 8, seq, 64, length)},
			hop{"node01 flannel.1", frame(t, "10.0.1.2", "10.0.2.2", 8, seq, 63, length)})
		if length > 84 {
			continue
		}
		hops = append(hops, hop{"node02 flannel.1", frame(t, "10.0.1.2", "10.0.2.2", 8, seq, 63, length)},
			hop{"node02 cni0", frame(t, "10.0.1.2", "10.0.2.2", 8, seq, 62, length)},
			hop{"node02 cni0", frame(t, "10.0.2.2", "10.0.1.2", 0, seq, 64, length)},
			hop{"node02 flannel.1", frame(t, "10.0.2.2", "10.0.1.2", 0, seq, 63, length)},
			hop{"node01 flannel.1", frame(t, "10.0.2.2", "10.0.1.2", 0, seq, 63, length)},
			hop{"node01 cni0", frame(t, "10.0.2.2", "10.0.1.2", 0, seq, 62, length)})
	}
	e := New()
	if err := e.Read("mtu.pcapng", bytes.NewReader(capture(t, hops...))); err != nil {
		t.Fatal(err)
	}
	got := sentence(t, answered(t, e), "10.0.1.2 → 10.0.2.2 (ICMP echo, id 7, 6 requests)")
	want := "of 6 requests, for 2 the request was routed from cni0 to flannel.1 on node01 and never seen " +
		"on node02; " +
		"for 4 the request was delivered to the pod behind cni0 on node02, and its reply came back to the pod " +
		"behind " +
		"cni0 on node01; those lost have 1500 bytes or more, those not lost 84 or less, which points to an MTU."
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCaptureOfOneDevice(t *testing.T) {
	raw, err := os.ReadFile("testdata/rules/node04-cni0.pcap")
	if err != nil {
		t.Fatal(err)
	}
	e := New()
	if err := e.Read("x/worker7-cni0.pcap", bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	if got := sentence(t, answered(t, e), "172.16.3.12 → 172.16.3.1 "); !strings.Contains(got, "seen on "+
		"cni0 of worker7") {
		t.Error(got)
	}
}
