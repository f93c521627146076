package underlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// pair is a switch with two hosts on it, a and b.
type pair struct {
	*Switch
	handle map[string]netns.NsHandle
}

func newPair(t *testing.T) *pair {
	t.Helper()
	s, err := NewSwitch(netip.MustParsePrefix("10.9.0.1/24"))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	p := &pair{s, map[string]netns.NsHandle{}}
	for port := range addrs {
		handle, err := ns.New()
		must(t, err)
		t.Cleanup(func() { must(t, handle.Close()) })
		p.handle[port] = handle
		p.plug(t, port)
		must(t, p.waitUp(port))
	}
	return p
}

var addrs = map[string]string{"a": "10.9.0.11", "b": "10.9.0.12"}

func (p *pair) plug(t *testing.T, port string) {
	t.Helper()
	must(t, p.Plug(port, p.handle[port], "eth0", netip.MustParsePrefix(addrs[port]+"/24")))
}

// udp opens a socket at a host.
func (p *pair) udp(t *testing.T, host string) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	must(t, ns.Do(p.handle[host], func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(addrs[host]), Port: 7})
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// send numbers n datagrams of a size and returns the numbers in the order in which they arrived at b,
// until none has for a while.
func (p *pair) send(t *testing.T, n, size int, within time.Duration) (arrived []uint32) {
	t.Helper()
	from, to := p.udp(t, "a"), p.udp(t, "b")
	defer from.Close()
	defer to.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		pace := time.NewTicker(200 * time.Microsecond)
		defer pace.Stop()
		for i := range n {
			<-pace.C
			data := make([]byte, size)
			binary.BigEndian.PutUint32(data, uint32(i))
			_, _ = from.WriteTo(data, to.LocalAddr())
		}
	}()
	must(t, to.SetReadDeadline(time.Now().Add(within)))
	buffer := make([]byte, 2000)
	for {
		got, err := to.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			select {
			case <-sent:
				return arrived
			default:
				must(t, to.SetReadDeadline(time.Now().Add(within)))
				continue
			}
		}
		must(t, err)
		for i := 4; i < got; i++ {
			if buffer[i] != 0 {
				t.Fatal("a corrupted datagram passed for whole")
			}
		}
		arrived = append(arrived, binary.BigEndian.Uint32(buffer))
		must(t, to.SetReadDeadline(time.Now().Add(within)))
	}
}

// bulk sends data from a to b over TCP and returns how long it took until all of it, unchanged, had arrived.
func (p *pair) bulk(t *testing.T, size int) time.Duration {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	var listener net.Listener
	must(t, ns.Do(p.handle["b"], func() (err error) {
		listener, err = net.Listen("tcp4", addrs["b"]+":9")
		return err
	}))
	defer listener.Close()
	result := make(chan error, 1)
	began := time.Now()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			result <- err
			return
		}
		defer conn.Close()
		got, err := io.ReadAll(conn)
		if err == nil && !bytes.Equal(got, data) {
			err = fmt.Errorf("%d bytes arrived for %d, or others", len(got), len(data))
		}
		result <- err
	}()
	conn, err := p.dial(addrs["b"] + ":9")
	must(t, err)
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Write(data)
	must(t, errors.Join(err, conn.Close(), <-result))
	return time.Since(began)
}

// dial connects from a.
func (p *pair) dial(to string) (conn net.Conn, err error) {
	err = ns.Do(p.handle["a"], func() error {
		conn, err = net.DialTimeout("tcp4", to, 2*time.Second)
		return err
	})
	return conn, err
}

func TestDelayHoldsUntilRepairedAndSurvivesAReplug(t *testing.T) {
	p := newPair(t)
	must(t, p.Impair("a", "test", Impairment{Delay: 40 * time.Millisecond}))
	if took := p.bulk(t, 16); took < 120*time.Millisecond { // SYN, SYN-ACK, data
		t.Errorf("data arrived after %s", took)
	}
	must(t, p.Unplug("a"))
	p.plug(t, "a")
	must(t, p.waitUp("a"))
	if took := p.bulk(t, 16); took < 120*time.Millisecond {
		t.Errorf("plugged again, and data arrived after %s", took)
	}
	e, err := p.Effects("a")
	must(t, err)
	if e.Delayed == 0 {
		t.Errorf("effects %+v", e)
	}
	must(t, p.Repair("a", "test"))
	if took := p.bulk(t, 16); took > 100*time.Millisecond {
		t.Errorf("repaired, and data arrived after %s", took)
	}
	links, err := p.nl.LinkList()
	must(t, err)
	if len(links) != 4 { // lo, the bridge, two ports
		t.Errorf("left: %v", links)
	}
}

func TestBulkDataPassesTheQueueWhole(t *testing.T) {
	p := newPair(t)
	must(t, p.Impair("a", "test", Impairment{Delay: time.Millisecond}))
	t.Logf("8 MiB through the queue in %s", p.bulk(t, 8<<20))
}

func TestDelayOfOneTCPPortSparesTheRest(t *testing.T) {
	p := newPair(t)
	must(t, p.Impair("b", "test", Impairment{Delay: 100 * time.Millisecond, TCPPort: 10}))
	if took := p.bulk(t, 16); took > 100*time.Millisecond {
		t.Errorf("another port was slow: %s", took)
	}
	must(t, p.Impair("b", "test", Impairment{Delay: 100 * time.Millisecond, TCPPort: 9}))
	if took := p.bulk(t, 16); took < 300*time.Millisecond {
		t.Errorf("the port was not slow: %s", took)
	}
}

func TestSharesOfFrames(t *testing.T) {
	const n = 400
	for name, c := range map[string]struct {
		Impairment
		holds func(arrived []uint32, e Effects) bool
	}{
		"loss": {Impairment{Loss: 0.3}, func(a []uint32, e Effects) bool {
			return len(a) < n*9/10 && len(a) > n/2 && e.Lost >= uint64(n-len(a))
		}},
		"all lost":  {Impairment{Loss: 1}, func(a []uint32, e Effects) bool { return len(a) == 0 && e.Lost > 0 }},
		"duplicate": {Impairment{Duplicate: 0.3}, func(a []uint32, _ Effects) bool { return len(a) > n*11/10 }},
		"corrupt": {Impairment{Corrupt: 0.3}, func(a []uint32, e Effects) bool {
			return len(a) < n*9/10 && len(a) > n/2 && e.Corrupted > n/10
		}},
		"reorder": {Impairment{Delay: 20 * time.Millisecond, Reorder: 0.3}, func(a []uint32, e Effects) bool {
			late := 0
			for i := 1; i < len(a); i++ {
				if a[i] < a[i-1] {
					late++
				}
			}
			return len(a) == n && late > 0 && e.Reordered > 0
		}},
		"nothing": {Impairment{Delay: time.Millisecond}, func(a []uint32, _ Effects) bool { return len(a) == n }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.bulk(t, 16) // both know each other's MAC
			must(t, p.Impair("a", "test", c.Impairment))
			arrived := p.send(t, n, 100, 300*time.Millisecond)
			e, err := p.Effects("a")
			must(t, err)
			if !c.holds(arrived, e) {
				t.Errorf("by %s: %d of %d arrived, effects %+v", Mechanism(c.Impairment), len(arrived), n, e)
			}
			must(t, p.Repair("a", "test"))
			p.bulk(t, 16)
			if arrived := p.send(t, n, 100, 200*time.Millisecond); len(arrived) != n {
				t.Errorf("repaired, and %d of %d arrived", len(arrived), n)
			}
		})
	}
}

func TestRateIsLimitedAndTheLowestHolds(t *testing.T) {
	p := newPair(t)
	must(t, p.Impair("a", "slow", Impairment{Rate: 4 << 20}))
	must(t, p.Impair("a", "fast", Impairment{Rate: 400 << 20}))
	if took := p.bulk(t, 512<<10); took < 500*time.Millisecond {
		t.Errorf("4 Mbit in %s at 4 Mbit/s", took)
	}
	if e, err := p.Effects("a"); err != nil || e.Limited == 0 {
		t.Errorf("effects %+v, %v", e, err)
	}
	must(t, p.Repair("a", "slow"))
	must(t, p.Repair("a", "fast"))
	if took := p.bulk(t, 512<<10); took > 400*time.Millisecond {
		t.Errorf("repaired, and 4 Mbit took %s", took)
	}
}

func TestHoldersOfDropsDoNotDisturbEachOther(t *testing.T) {
	p := newPair(t)
	p.bulk(t, 16) // both know each other's MAC
	must(t, p.Cut("a", "b"))
	must(t, p.Drop("other", Drop{From: "a", To: "b"}))
	must(t, p.Heal("b", "a"))
	if got := p.send(t, 3, 10, 50*time.Millisecond); len(got) != 0 {
		t.Errorf("%d frames passed what one holder still drops", len(got))
	}
	if counts, err := p.DroppedBy("other"); err != nil || counts[0] == 0 {
		t.Errorf("counted %v, %v", counts, err)
	}
	must(t, p.Pass("other"))
	must(t, p.Pass("other"))
	if got := p.send(t, 3, 10, 50*time.Millisecond); len(got) != 3 {
		t.Errorf("%d of 3 passed", len(got))
	}
}

func TestBlackHolesOfSizeAndOfEstablishedConnections(t *testing.T) {
	p := newPair(t)
	must(t, p.Drop("long", Drop{From: "a", LongerThan: 1000}))
	if short, long := p.send(t, 5, 900, 50*time.Millisecond), p.send(t, 5, 1100, 50*time.Millisecond); len(
		short) != 5 || len(long) != 0 {
		t.Errorf("%d short and %d long packets passed", len(short), len(long))
	}
	must(t, p.Pass("long"))
	var listener net.Listener
	must(t, ns.Do(p.handle["b"], func() (err error) {
		listener, err = net.Listen("tcp4", addrs["b"]+":9")
		return err
	}))
	defer listener.Close()
	must(t, p.Drop("established", Drop{To: "b", Established: true}))
	conn, err := p.dial(addrs["b"] + ":9")
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("hello"))
	must(t, err)
	must(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(200*time.Millisecond)))
	if _, err := listener.Accept(); err == nil {
		t.Error("the end of the handshake passed")
	}
}

func TestCableThatSeveralPullIsPluggedByTheLast(t *testing.T) {
	p := newPair(t)
	isUp := func() bool {
		link, err := p.nl.LinkByName("a")
		must(t, err)
		return link.Attrs().Flags&net.FlagUp != 0
	}
	must(t, p.PullCable("a", "one"))
	must(t, p.PullCable("a", "two"))
	must(t, p.PlugCable("a", "one"))
	must(t, p.Unplug("a"))
	p.plug(t, "a")
	if isUp() {
		t.Error("up while one holds it down")
	}
	must(t, p.PlugCable("a", "two"))
	if !isUp() {
		t.Error("down while nobody holds it down")
	}
}

func TestNetemIsAskedForInItsUnits(t *testing.T) {
	n := netemOf(netlink.QdiscAttrs{}, sum([]Impairment{
		{Loss: 0.5, Delay: time.Millisecond, Rate: 8000}, {Loss: 0.5, Delay: 2 * time.Millisecond, Rate: 800},
	}))
	want := netlink.NewNetem(netlink.QdiscAttrs{}, netlink.NetemQdiscAttrs{
		Loss: 75, Latency: 3000, Rate64: 100, Limit: 10000,
	})
	if *n != *want {
		t.Errorf("got %+v, want %+v", n, want)
	}
	parts := Impairment{Loss: 0.1, Delay: 1, Rate: 1}.parts(true)
	if len(parts) != 1 || parts[0].how != ByNetem {
		t.Errorf("with netem: %+v", parts)
	}
	if parts := (Impairment{Loss: 0.1, Delay: 1, Rate: 1}).parts(false); len(parts) != 3 {
		t.Errorf("without netem: %+v", parts)
	}
}
