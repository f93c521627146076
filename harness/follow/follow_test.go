package follow_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/probe"
)

func TestDeliveredIsSeenAtEveryHop(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	trace, err := follow.Follow(t.Context(), w.path(1, 2))
	w.must(err)
	if took := time.Since(began); took > time.Second {
		t.Errorf("an answered echo was followed for %s", took)
	}
	if trace.Cause != follow.Delivered || trace.Sentence != "pod1 got its reply from pod2" {
		t.Errorf("%s: %s", trace.Cause, trace.Sentence)
	}
	var names []string
	for i, h := range trace.Hops {
		if !h.Seen {
			t.Errorf("not seen: %+v", h)
		}
		if i > 0 && h.At.Before(trace.Hops[i-1].At) {
			t.Errorf("seen before the hop before it: %+v", h)
		}
		names = append(names, h.Node+":"+h.Device)
	}
	want := "pod1:eth0 node01:veth1 node01:cni0 node01:flannel.1 node01:eth0 switch:node01 switch:node02 " +
		"node02:eth0 node02:flannel.1 node02:cni0 node02:veth1 pod2:eth0 pod2:eth0 node02:veth1 node02:cni0 " +
		"node02:flannel.1 node02:eth0 switch:node02 switch:node01 node01:eth0 node01:flannel.1 node01:cni0 " +
		"node01:veth1 pod1:eth0"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("hops\n%s, want\n%s", got, want)
	}
}

// Other ways through the same world: between nodes and pods, and on one node.
func TestDeliveredOnOtherWays(t *testing.T) {
	w := newWorld(t)
	host := func(n int) follow.End { return follow.End{Name: w.name(n), Addr: w.uplink(n), Node: w.name(n)} }
	for name, ends := range map[string]struct {
		from, to follow.End
		hops     int
	}{
		"node to another's pod": {host(1), w.path(1, 2).To, 18},
		"node to its own pod":   {host(2), w.path(1, 2).To, 6},
		"pod to another node":   {w.path(1, 2).From, host(2), 16},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.path(1, 2)
			p.From, p.To = ends.from, ends.to
			trace, err := follow.Follow(t.Context(), p)
			w.must(err)
			if trace.Cause != follow.Delivered || len(trace.Hops) != ends.hops {
				t.Errorf("%s, %d hops, want %d", trace.Sentence, len(trace.Hops), ends.hops)
			}
			for _, h := range trace.Hops {
				if !h.Seen {
					t.Errorf("not seen: %+v", h)
				}
			}
		})
	}
}

func TestPcapngHasAnInterfaceForEachHop(t *testing.T) {
	w := newWorld(t)
	w.must(w.nl(1).NeighDel(w.fdb(1, 2)))
	trace, err := follow.Follow(t.Context(), w.path(1, 2))
	w.must(err)
	var file bytes.Buffer
	w.must(trace.WritePcapng(&file))
	options := pcapgo.DefaultNgReaderOptions
	options.WantMixedLinkType = true
	r, err := pcapgo.NewNgReader(&file, options)
	w.must(err)
	packets := map[string]int{}
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		w.must(err)
		i, err := r.Interface(info.InterfaceIndex)
		w.must(err)
		packets[i.Name]++
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if !ok || !ip.DstIP.Equal(net.IP(w.pod(2).AsSlice())) {
			t.Errorf("on %s: %s", i.Name, p)
		}
		if age := time.Since(info.Timestamp); age < 0 || age > time.Minute {
			t.Errorf("on %s: at %s", i.Name, info.Timestamp)
		}
	}
	if r.NInterfaces() != 12 {
		t.Errorf("%d interfaces", r.NInterfaces())
	}
	want := map[string]int{"pod1:eth0": 1, "node01:veth1": 1, "node01:cni0": 1, "node01:flannel.1": 1}
	for name, n := range want {
		if packets[name] != n {
			t.Errorf("%s: %d packets, want %d", name, packets[name], n)
		}
	}
	if len(packets) != len(want) {
		t.Errorf("packets on %v", packets)
	}
}

func TestKernelsReasonIsAdded(t *testing.T) {
	w := newWorld(t)
	w.another(2, 7, 8472)
	trace, err := follow.Follow(t.Context(), w.path(1, 2))
	w.must(err)
	known := strings.Contains(trace.Sentence, "the kernel's drop reason: VXLAN_VNI_NOT_FOUND")
	noted := strings.Contains(strings.Join(trace.Notes, "\n"), "drop reasons are not available")
	if known == noted {
		t.Errorf("reason given %t, noted as missing %t: %s %q", known, noted, trace.Sentence, trace.Notes)
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	w.must(err)
	// All ids are mapped in the first user namespace, in which alone the kernel tells (user_namespaces(7)).
	if root := strings.Contains(string(ids), "4294967295"); !root && known {
		t.Errorf("reasons in a user namespace with the ids %s", ids)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	w := newWorld(t)
	_, err := follow.Follow(t.Context(), w.path(1, 2))
	w.must(err)
	for n := 1; n <= 3; n++ {
		conn, err := nftables.New(nftables.WithNetNSFd(int(w.nodes[n-1].NetNS())))
		w.must(err)
		tables, err := conn.ListTables()
		w.must(err)
		for _, table := range tables {
			t.Errorf("%s has the table %s", w.name(n), table.Name)
		}
	}
}

func TestPathsThatCannotBeFollowed(t *testing.T) {
	w := newWorld(t)
	noAddress, noNode := w.path(1, 2), w.path(1, 2)
	noNode.From.Node = "node09"
	noAddress.To = follow.End{Name: "pod9", Node: "node01", Device: "eth0"}
	for want, p := range map[string]follow.Path{
		"pod9 has no IPv4 address": noAddress, `the node "node09" of pod1`: noNode,
	} {
		if _, err := follow.Follow(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// probed is a mesh in which each of the three pods asks each other a hundred times a second, once they have
// talked.
func probed(tb testing.TB, w *world) *probe.Mesh {
	tb.Helper()
	mesh := probe.NewMesh(probe.Options{Interval: 10 * time.Millisecond})
	tb.Cleanup(mesh.Close)
	for n := 1; n <= 3; n++ {
		end := w.path(n, n).From
		w.must(mesh.Add(probe.Endpoint{Name: end.Name, Node: end.Node, NS: w.pods[n-1], Addr: w.pod(n)}))
	}
	for a := 1; a <= 3; a++ {
		for b := 1; b <= 3; b++ {
			if a != b {
				w.talked(a, b)
				w.must(mesh.Probe(w.path(a, b).From.Name, w.path(a, b).To.Name))
			}
		}
	}
	return mesh
}

// TestFollowingLosesNoProbe follows packets while every pair of pods is probed a hundred times a second.
func TestFollowingLosesNoProbe(t *testing.T) {
	w := newWorld(t)
	mesh := probed(t, w)
	const follows = 10
	for range follows {
		w.talked(1, 2)
	}
	report, err := mesh.Settle(t.Context())
	w.must(err)
	lost, sent := report.Lost(nil)
	if lost != 0 || sent < 100 {
		t.Errorf("lost %d of %d while %d packets were followed", lost, sent, follows)
	}
	t.Logf("lost %d of %d, skipped %d", lost, sent, report.Skipped)
}

// BenchmarkFollow follows an echo that is answered, while six pairs are probed a hundred times a second, and
// reports how many probes were lost.
func BenchmarkFollow(b *testing.B) {
	w := newWorld(b)
	mesh := probed(b, w)
	for b.Loop() {
		w.talked(1, 2)
	}
	report, err := mesh.Settle(b.Context())
	w.must(err)
	lost, sent := report.Lost(nil)
	b.ReportMetric(float64(lost), "lost")
	b.ReportMetric(float64(sent), "sent")
}
