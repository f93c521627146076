package probe

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/ns"
)

// A receiver that is held up for longer than an answer may take has missed none: the kernel has kept and
// stamped them.
func TestLateReaderLosesNothing(t *testing.T) {
	handle, err := ns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	err = ns.Do(handle, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMesh(Options{Timeout: 50 * time.Millisecond})
	defer m.Close()
	for name, addr := range map[string]string{"a": "127.0.0.1", "b": "127.0.0.2"} {
		e := Endpoint{Name: name, Node: name, NS: handle, Addr: netip.MustParseAddr(addr)}
		if err := m.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range m.endpoints { // both: raw sockets of one namespace get each other's answers too
		e.reading.Lock()
	}
	if err := m.Probe("a", "b"); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 2*(slack+m.opts.Timeout); {
		runtime.Gosched()
	}
	for _, e := range m.endpoints {
		e.reading.Unlock()
	}
	m.Stop("a", "b")
	report, err := m.Settle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := report.Pairs[0]; p.Lost != 0 || p.Sent == 0 {
		t.Errorf("lost %d of %d", p.Lost, p.Sent)
	}
}
