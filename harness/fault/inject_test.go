package fault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/etcd"
)

func TestEtcdIsBrokenAndHealed(t *testing.T) {
	w := newWorld(t)
	for _, f := range []Fault{EtcdStop{}, EtcdKill{}, EtcdPause{}, EtcdWipe{}} {
		w.put(t, "/subnets/10.5.3.0-24", "{}")
		if err := w.inject(t, f); err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		if err := w.Heal(t.Context()); err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		want := []string{"/config", "/subnets/10.5.3.0-24"}
		if f == (EtcdWipe{}) {
			want = want[:1]
		}
		if got := w.keys(t); !slices.Equal(got, want) {
			t.Errorf("%s and healed: keys %v, want %v", f.Name(), got, want)
		}
	}
}

// Each order of healing must leave one server, which the member knows: a second one used to be started.
func TestOverlappingEtcdFaultsHealInAnyOrder(t *testing.T) {
	w := newWorld(t)
	for _, order := range [][]Fault{{EtcdStop{}, EtcdKill{}}, {EtcdKill{}, EtcdStop{}}} {
		must(t, w.inject(t, EtcdStop{}))
		must(t, w.inject(t, EtcdKill{}))
		for _, f := range order {
			must(t, w.HealOne(t.Context(), f))
		}
		must(t, w.Etcd().Kill(t.Context()))
		if err := dialEtcd(t.Context(), w, ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("healed in the order %v: after the kill something else has the port: %v", order, err)
		}
		must(t, w.Etcd().Start(t.Context()))
	}
}

func TestCutIsSilentAndOnlyForItsNode(t *testing.T) {
	w := newWorld(t)
	must(t, dialEtcd(t.Context(), w, "node01"))
	must(t, w.inject(t, CutFromEtcd{"node01"}))
	err := dialEtcd(t.Context(), w, "node01")
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("node01 was not left without an answer: %v", err)
	}
	must(t, dialEtcd(t.Context(), w, "node02"))
	must(t, w.Heal(t.Context()))
	must(t, dialEtcd(t.Context(), w, "node01"))
}

func TestAgentsAreBrokenAndHealed(t *testing.T) {
	w := newWorld(t)
	must(t, w.StartAgent(t.Context(), "node01"))
	for _, f := range []Fault{
		AgentKill{"node01"},
		AgentStop{"node01"},
		AgentPause{"node01"},
		AgentRestart{"node01"},
	} {
		before := w.agents["node01"]
		if err := w.inject(t, f); err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		if _, paused := f.(AgentPause); before.Running() != paused {
			t.Errorf("%s: running: %v", f.Name(), before.Running())
		}
		must(t, w.Heal(t.Context()))
		if !w.agents["node01"].Running() {
			t.Errorf("%s and healed: no agent runs", f.Name())
		}
	}
	if err := w.inject(t, AgentKill{"node09"}); err == nil || len(w.Active()) != 0 {
		t.Errorf("a node that is not there: %v, to heal %v", err, w.Active())
	}
}

func TestEndOfNoAgentIsNotProven(t *testing.T) {
	w := newWorld(t)
	must(t, w.StartAgent(t.Context(), "node01"))
	must(t, w.agents["node01"].Kill(t.Context()))
	for _, f := range []Fault{
		AgentKill{"node01"},
		AgentStop{"node01"},
		AgentPause{"node01"},
		AgentRestart{"node01"},
	} {
		if err := w.inject(t, f); !errors.Is(err, ErrNotProven) || len(w.Active()) != 0 {
			t.Errorf("%s: %v, to heal %v", f.Name(), err, w.Active())
		}
	}
}

func TestLeaseReallyExpires(t *testing.T) {
	w := newWorld(t)
	must(t, w.register(t.Context(), "node01", "10.5.3.0-24", 1))
	began := time.Now()
	must(t, w.inject(t, LeaseExpire{"node01", 5 * time.Second}))
	t.Logf("a lease of 1 s was gone after %s", time.Since(began).Round(10*time.Millisecond))
	must(t, w.register(t.Context(), "node01", "10.5.3.0-24", 60))
	if err := w.inject(t, LeaseExpire{"node01", 200 * time.Millisecond}); !errors.Is(err, ErrNotProven) {
		t.Errorf("a lease that lives was said to have expired: %v", err)
	}
}

func TestSubnetIsTaken(t *testing.T) {
	w := newWorld(t)
	w.writeSubnet(t, "node01", "10.5.3.1/24")
	must(t, w.inject(t, SubnetTaken{From: "node01", By: "node02"}))
	if got := w.keys(t); !slices.Contains(got, "/subnets/10.5.3.0-24") {
		t.Errorf("keys %v", got)
	}
}

func TestFileIsDeletedOnce(t *testing.T) {
	w := newWorld(t)
	w.writeSubnet(t, "node01", "10.5.3.1/24")
	f := FileDeleted{"node01", w.SubnetFile()}
	must(t, w.inject(t, f))
	if _, err := os.Stat(w.machines["node01"].Path(w.SubnetFile())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
	if err := w.inject(t, f); !errors.Is(err, ErrNotProven) {
		t.Errorf("deleted what was not there: %v", err)
	}
}

func TestNeighboursAgeAndPermanentOnesDoNot(t *testing.T) {
	w := newWorld(t)
	link := w.addDevice(t, "node01")
	h := w.machines["node01"].Netlink()
	states := map[string]int{"10.5.4.0": netlink.NUD_REACHABLE, "10.5.5.0": netlink.NUD_PERMANENT}
	for ip, state := range states {
		must(t, h.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: state, IP: net.ParseIP(ip),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		}))
	}
	const key = "net.ipv4.neigh.flannel/1.base_reachable_time_ms"
	before, err := w.machines["node01"].ReadSysctl(key)
	must(t, err)
	must(t, w.inject(t, AgeNeighbours{[]string{"node01"}}))
	entries, err := h.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	must(t, err)
	states["10.5.4.0"] = netlink.NUD_STALE
	for _, n := range entries {
		if want, ok := states[n.IP.String()]; ok && n.State != want {
			t.Errorf("%s is in state %#x, want %#x", n.IP, n.State, want)
		}
		delete(states, n.IP.String())
	}
	if len(states) != 0 {
		t.Errorf("not found: %v", states)
	}
	must(t, w.Heal(t.Context()))
	if after, err := w.machines["node01"].ReadSysctl(key); err != nil || after != before {
		t.Errorf("%s was %s and is %s after the heal (%v)", key, before, after, err)
	}
}

// A connection that was made before is reset, and so is one that is made then; other nodes are not touched.
func TestConnectionsToEtcdAreReset(t *testing.T) {
	w := newWorld(t)
	f := EtcdReset{"node01"}
	if err := w.inject(t, f); !errors.Is(err, ErrNotProven) || len(w.Active()) != 0 {
		t.Fatalf("without a connection: %v, to heal %v", err, w.Active())
	}
	connect := func(name string) (conn net.Conn) {
		must(t, w.machines[name].Do(func() (err error) {
			conn, err = (&net.Dialer{KeepAlive: 100 * time.Millisecond}).DialContext(t.Context(), "tcp",
				"192.168.200.10:2379")
			return err
		}))
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	connect("node01")
	other := connect("node02")
	must(t, w.inject(t, f))
	if n, err := connections(w.machines["node02"], w.Etcd().Members()); n != 1 || err != nil {
		t.Errorf("node02 has %d connections to etcd (%v)", n, err)
	}
	must(t, dialEtcd(t.Context(), w, "node02"))
	must(t, w.Heal(t.Context()))
	must(t, dialEtcd(t.Context(), w, "node01"))
	must(t, other.Close())
}

func TestEstablishedConnections(t *testing.T) {
	raw := []byte{192, 168, 200, 10}
	peer := netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw)), etcd.ClientPort)
	remote := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(raw), etcd.ClientPort)
	table := "  sl  local_address rem_address   st tx_queue\n" +
		"   0: 00000000:094B 00000000:0000 0A 0:0\n" +
		"   1: C9C8A8C0:D431 " + remote + " 01 0:0\n" +
		"   2: C9C8A8C0:D432 " + remote + " 02 0:0\n" +
		"   3: C9C8A8C0:D433 " + remote + " 01 0:0\n" +
		"   4: " + remote + " C9C8A8C0:D433 01 0:0\n"
	if n := established(table, peer); n != 2 {
		t.Errorf("%d", n)
	}
}

// The history after Since is made as long as it takes for a watch to be told; without that etcd would go on
// serving it.
func TestCompactionIsToldToAWatch(t *testing.T) {
	w := newWorld(t)
	since, err := Revision(t.Context(), w)
	must(t, err)
	must(t, w.inject(t, EtcdCompacted{Since: since}))
	must(t, w.inject(t, EtcdCompacted{}))
	now, err := Revision(t.Context(), w)
	must(t, err)
	if now != since+2 {
		t.Errorf("revision %d after %d", now, since)
	}
}
