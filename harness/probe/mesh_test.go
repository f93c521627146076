package probe_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

// world is a switch with n hosts, h1 to hN, all in a mesh.
func world(tb testing.TB, n int, opts probe.Options) (*underlay.Switch, *probe.Mesh) {
	tb.Helper()
	sw, err := underlay.NewSwitch(netip.MustParsePrefix("10.9.0.254/24"))
	if err != nil {
		tb.Fatal(err)
	}
	mesh := probe.NewMesh(opts)
	tb.Cleanup(func() {
		mesh.Close()
		if err := sw.Close(); err != nil {
			tb.Error(err)
		}
	})
	for i := 1; i <= n; i++ {
		name, handle := fmt.Sprintf("h%d", i), namespace(tb)
		addr := netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})
		if err := sw.Plug(name, handle, "eth0", netip.PrefixFrom(addr, 24)); err != nil {
			tb.Fatal(err)
		}
		e := probe.Endpoint{Name: name, Node: "node of " + name, NS: handle, Addr: addr}
		if err := mesh.Add(e); err != nil {
			tb.Fatal(err)
		}
	}
	return sw, mesh
}

func namespace(tb testing.TB) netns.NsHandle {
	tb.Helper()
	handle, err := ns.New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = handle.Close() })
	must(tb, ns.Do(handle, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}))
	return handle
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// eventually waits for a condition.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.After(10 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			tb.Fatalf("never came true: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A pair is known by the nodes of its ends, whatever they are called.
func TestPairsNameTheirNodes(t *testing.T) {
	_, mesh := world(t, 2, probe.Options{})
	must(t, mesh.Probe("h1", "h2"))
	p, err := mesh.Report().Pair("h1", "h2")
	must(t, err)
	if p.FromNode != "node of h1" || p.ToNode != "node of h2" || p.IPv6 {
		t.Errorf("%+v", p)
	}
	if !p.On("node of h1") || !p.On("node of h2") || p.On("node") {
		t.Error("the pair is on other nodes")
	}
	if err := mesh.Add(probe.Endpoint{Name: "nowhere", NS: namespace(t)}); err == nil {
		t.Error("an endpoint is on no node")
	}
}

func TestCutIsAnOutageOfItsLength(t *testing.T) {
	sw, mesh := world(t, 3, probe.Options{Timeout: 200 * time.Millisecond})
	must(t, mesh.Probe("h1", "h2"))
	must(t, mesh.Probe("h1", "h3"))
	sent := func(n uint64) func() bool {
		return func() bool {
			p, _ := mesh.Report().Pair("h1", "h2")
			return p.Sent >= n
		}
	}
	eventually(t, "50 echoes are decided", sent(50))
	cut := time.Now()
	must(t, sw.Cut("h1", "h2"))
	eventually(t, "100 echoes are decided", sent(100))
	if dropped, err := sw.Dropped("h1", "h2"); err != nil || dropped == 0 {
		t.Errorf("dropped %d, %v", dropped, err)
	}
	must(t, sw.Heal("h1", "h2"))
	healed := time.Now()
	eventually(t, "200 echoes are decided", sent(200))
	report, err := mesh.Settle(t.Context())
	must(t, err)
	p, err := report.Pair("h1", "h2")
	must(t, err)
	if len(p.Outages) != 1 {
		t.Fatalf("%+v", p)
	}
	length := healed.Sub(cut)
	if diff := p.Outages[0].Length - length; diff.Abs() > 60*time.Millisecond {
		t.Errorf("cut for %s, measured %s", length, p.Outages[0].Length)
	}
	if d, ok := p.Recovery(healed); !ok || d > 60*time.Millisecond {
		t.Errorf("recovered %s after the heal, %t", d, ok)
	}
	other, err := report.Pair("h1", "h3")
	must(t, err)
	if other.Lost != 0 || other.Sent == 0 {
		t.Errorf("the pair that was not cut: %+v", other)
	}
}

func TestSilentPairIsAsked(t *testing.T) {
	sw, mesh := world(t, 2, probe.Options{Timeout: 200 * time.Millisecond})
	eventually(t, "the bridge forwards, after its ports have a carrier", func() bool {
		a, err := mesh.Ask(t.Context(), "h1", "h2", 1)
		return err == nil && a.Reached()
	})
	a, err := mesh.Ask(t.Context(), "h1", "h2", 5)
	must(t, err)
	if a.Sent != 5 || a.Lost != 0 {
		t.Fatalf("%+v", a)
	}
	must(t, sw.Cut("h1", "h2"))
	a, err = mesh.Ask(t.Context(), "h1", "h2", 5)
	must(t, err)
	if a.Lost != 5 || a.Reached() {
		t.Fatalf("%+v", a)
	}
	if n := len(mesh.Report().Pairs); n != 0 {
		t.Fatalf("questions are in the report of the mesh: %d pairs", n)
	}
}

func TestHostUnreachableIsReported(t *testing.T) {
	_, mesh := world(t, 1, probe.Options{Timeout: 200 * time.Millisecond})
	// Nobody has 10.9.0.77, so the kernel of h1 says host unreachable to its own socket.
	must(t, mesh.Add(probe.Endpoint{
		Name: "nobody", Node: "none", NS: namespace(t), Addr: netip.MustParseAddr("10.9.0.77"),
	}))
	must(t, mesh.Probe("h1", "nobody"))
	eventually(t, "an ICMP error arrives", func() bool { return len(mesh.Report().Errors) > 0 })
	e := mesh.Report().Errors[0]
	if !strings.Contains(e.First.String(), " m=") { // see Time.String
		t.Errorf("what arrives is timed by a clock that can be set: %s", e.First)
	}
	if e.At != "h1" || e.Type != 3 || e.Code != 1 || e.Destination.String() != "10.9.0.77" {
		t.Fatalf("%+v", e)
	}
}

func TestFullLoadLosesNothing(t *testing.T) {
	_, mesh := world(t, 8, probe.Options{Interval: 10 * time.Millisecond})
	for i := 1; i <= 8; i++ {
		for j := 1; j <= 8; j++ {
			if i != j {
				must(t, mesh.Probe(fmt.Sprintf("h%d", i), fmt.Sprintf("h%d", j)))
			}
		}
	}
	var report probe.Report
	eventually(t, "10,000 echoes are decided", func() bool {
		report = mesh.Report()
		_, sent := report.Lost(nil)
		return sent > 10000
	})
	if lost, sent := report.Lost(nil); lost != 0 {
		t.Errorf("%d of %d lost", lost, sent)
	}
}

func BenchmarkAsk(b *testing.B) {
	_, mesh := world(b, 2, probe.Options{Interval: 20 * time.Microsecond})
	a, err := mesh.Ask(context.Background(), "h1", "h2", max(b.N, 1))
	must(b, err)
	if a.Lost > 0 {
		b.Fatalf("%+v", a)
	}
}
