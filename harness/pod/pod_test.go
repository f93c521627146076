package pod_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

// The plugin under test is overlay-cni with the real bridge and host-local, on a machine without an agent:
// the subnet file is written by hand.

func TestMain(m *testing.M) {
	if !sandbox.Inside() {
		if _, err := build.Bin(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	sandbox.Enter()
	os.Exit(m.Run())
}

// host is a machine with the overlay's plugin.
type host struct {
	tb  testing.TB
	m   *node.Machine
	net pod.Network
}

func newHost(tb testing.TB, defects ...string) host {
	tb.Helper()
	sw, err := underlay.NewSwitch(netip.MustParsePrefix("192.168.200.1/24"))
	must(tb, err)
	dir, err := os.MkdirTemp(sandbox.Dir, "pod-")
	must(tb, err)
	m, err := node.New(tb.Context(), node.Options{
		Name: "node01", Dir: dir, Switch: sw,
		Addr: netip.MustParsePrefix("192.168.200.201/24"),
	})
	must(tb, err)
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
		_ = sw.Close()
	})
	conf, dirs := driver.Ours{Bin: os.Getenv(build.Env), Defects: defects}.CNI()
	return host{tb, m, pod.Network{ConfList: conf, BinDirs: dirs}}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// subnet writes the subnet file, as an agent does.
func (h host) subnet(gateway string) {
	h.tb.Helper()
	path := h.m.Path("/run/flannel/subnet.env")
	must(h.tb, os.MkdirAll(filepath.Dir(path), 0o755))
	env := "FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=" + gateway +
		"\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	must(h.tb, os.WriteFile(path, []byte(env), 0o644))
}

func (h host) add(name string) *pod.Pod {
	h.tb.Helper()
	p, err := pod.Add(h.tb.Context(), h.m, h.net, name)
	must(h.tb, err)
	h.tb.Cleanup(func() { _ = p.Close() })
	return p
}

// clean fails the test if a veth, a reservation or a cache of a pod is left.
func (h host) clean() {
	h.tb.Helper()
	s, err := observe.Read(h.m.NetNS())
	must(h.tb, err)
	for _, l := range s.Links {
		if strings.HasPrefix(l.Name, "veth") {
			h.tb.Errorf("left: %+v", l)
		}
	}
	for _, dir := range []string{"/var/lib/cni/networks/overlay", "/var/lib/cni/flannel"} {
		entries, err := os.ReadDir(h.m.Path(dir))
		if err != nil && !os.IsNotExist(err) {
			h.tb.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "lock" && e.Name()[0] != '.' && !strings.HasPrefix(e.Name(), "last_reserved_ip") {
				h.tb.Errorf("left: %s/%s", dir, e.Name())
			}
		}
	}
}

func TestAddCheckDel(t *testing.T) {
	h := newHost(t)
	h.subnet("10.5.1.1/24")
	must(t, pod.Status(t.Context(), h.m, h.net))
	p := h.add("a")
	if p.Addr().String() != "10.5.1.2" {
		t.Errorf("address %s", p.Addr())
	}
	must(t, p.Check(t.Context()))
	must(t, p.Del(t.Context()))
	h.clean()
}

func TestAddBeforeThereIsASubnet(t *testing.T) {
	h := newHost(t)
	_, err := pod.Add(t.Context(), h.m, h.net, "a")
	if err == nil || !strings.Contains(err.Error(), "no subnet yet") {
		t.Fatalf("got %v", err)
	}
	if err := pod.Status(t.Context(), h.m, h.net); err == nil {
		t.Error("STATUS says that the plugin is ready")
	}
	h.clean()
	h.subnet("10.5.1.1/24")
	h.add("a")
}

func TestAddMendsABridgeOfAnotherSubnet(t *testing.T) {
	h := newHost(t)
	h.subnet("10.5.1.1/24")
	old := h.add("old")
	h.subnet("10.5.2.1/24")
	p := h.add("new")
	if p.Addr().String() != "10.5.2.2" {
		t.Errorf("address %s", p.Addr())
	}
	must(t, old.Del(t.Context()))
	must(t, p.Del(t.Context()))
	h.clean()
}

func TestDefectLeavesTheBridgeAlone(t *testing.T) {
	h := newHost(t, "forget-subnet")
	h.subnet("10.5.1.1/24")
	h.add("old")
	h.subnet("10.5.2.1/24")
	_, err := pod.Add(t.Context(), h.m, h.net, "new")
	if err == nil ||
		!strings.Contains(err.Error(), `"cni0" already has an IP address different from 10.5.2.1/24`) {
		t.Fatalf("got %v", err)
	}
}

func TestDelIsForgiving(t *testing.T) {
	for name, damage := range map[string]func(h host, cache string) error{
		"cache gone":       func(_ host, cache string) error { return os.Remove(cache) },
		"cache truncated":  func(_ host, cache string) error { return os.Truncate(cache, 10) },
		"cache empty":      func(_ host, cache string) error { return os.Truncate(cache, 0) },
		"subnet file gone": func(h host, _ string) error { return os.Remove(h.m.Path("/run/flannel/subnet.env")) },
		"cache and file gone": func(h host, cache string) error {
			if err := os.Remove(cache); err != nil {
				return err
			}
			return os.Remove(h.m.Path("/run/flannel/subnet.env"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.subnet("10.5.1.1/24")
			p := h.add("a")
			must(t, damage(h, h.m.Path("/var/lib/cni/flannel/a")))
			must(t, p.Del(t.Context()))
			h.clean()
		})
	}
}

func TestDelOfAPodThatNeverWas(t *testing.T) {
	h := newHost(t)
	h.subnet("10.5.1.1/24")
	p := h.add("a")
	must(t, p.Del(t.Context()))
	must(t, p.Del(t.Context())) // again: idempotent
	h.clean()
}

func TestFailedDelCanBeRepeated(t *testing.T) {
	h := newHost(t)
	h.subnet("10.5.1.1/24")
	p := h.add("a")
	// A lock that is a directory makes host-local fail.
	lock := h.m.Path("/var/lib/cni/networks/overlay/lock")
	must(t, os.Rename(lock, lock+".aside"))
	must(t, os.Mkdir(lock, 0o755))
	if err := p.Del(t.Context()); err == nil {
		t.Fatal("DEL went well although host-local cannot work")
	}
	must(t, os.Remove(lock))
	must(t, os.Rename(lock+".aside", lock))
	must(t, p.Del(t.Context()))
	h.clean()
}

func TestExhaustedRangeLeavesNothing(t *testing.T) {
	h := newHost(t)
	h.subnet("10.5.1.1/30") // one address for a pod
	p := h.add("a")
	_, err := pod.Add(t.Context(), h.m, h.net, "b")
	if err == nil || !strings.Contains(err.Error(), "no IP addresses available") {
		t.Fatalf("got %v", err)
	}
	must(t, p.Del(t.Context()))
	h.clean()
	h.add("b")
}

func TestGCFreesWhatVanished(t *testing.T) {
	h := newHost(t)
	h.subnet("10.5.1.1/24")
	alive, dead := h.add("alive"), h.add("dead")
	must(t, dead.Vanish())
	must(t, pod.GC(t.Context(), h.m, h.net, alive))
	if _, err := os.Stat(
		h.m.Path("/var/lib/cni/networks/overlay/" + dead.Addr().String()),
	); !os.IsNotExist(
		err,
	) {
		t.Errorf("the dead pod's address is still reserved: %v", err)
	}
	if _, err := os.Stat(h.m.Path("/var/lib/cni/networks/overlay/" + alive.Addr().String())); err != nil {
		t.Errorf("the living pod's address is not reserved: %v", err)
	}
	must(t, alive.Check(t.Context()))
}

func TestManyAtOnce(t *testing.T) {
	h := newHost(t)
	h.subnet("10.5.1.1/24")
	const n = 64
	pods := make([]*pod.Pod, n)
	parallel(n, func(i int) {
		p, err := pod.Add(context.Background(), h.m, h.net, fmt.Sprintf("p%d", i))
		if err != nil {
			t.Error(err)
			return
		}
		pods[i] = p
	})
	seen := map[netip.Addr]bool{}
	for _, p := range pods {
		if p == nil {
			t.FailNow()
		}
		if seen[p.Addr()] {
			t.Errorf("%s was given away twice", p.Addr())
		}
		seen[p.Addr()] = true
	}
	parallel(n, func(i int) {
		if err := pods[i].Del(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h.clean()
}

func parallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

func BenchmarkAddDel(b *testing.B) {
	h := newHost(b)
	h.subnet("10.5.1.1/24")
	for i := 0; b.Loop(); i++ {
		p, err := pod.Add(b.Context(), h.m, h.net, fmt.Sprintf("p%d", i))
		must(b, err)
		must(b, p.Del(b.Context()))
	}
}
