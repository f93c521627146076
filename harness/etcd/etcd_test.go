package etcd_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

func member(tb testing.TB, level string) *etcd.Member {
	tb.Helper()
	sw, err := underlay.NewSwitch(netip.MustParsePrefix("192.168.200.1/24"))
	if err != nil {
		tb.Fatal(err)
	}
	m, err := node.New(tb.Context(), node.Options{
		Name: "etcd", Dir: filepath.Join(sandbox.Dir, strings.ReplaceAll(tb.Name(), "/", "-")),
		Switch: sw, Addr: netip.MustParsePrefix("192.168.200.10/24"),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
		if err := sw.Close(); err != nil {
			tb.Error(err)
		}
	})
	return etcd.New(etcd.Options{Machine: m, LogLevel: level})
}

func client(tb testing.TB, m *etcd.Member) *clientv3.Client {
	tb.Helper()
	c, err := m.Client(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestDataSurvivesKillAndNotWipe(t *testing.T) {
	ctx := t.Context()
	m := member(t, "")
	must(t, m.Start(ctx))
	c := client(t, m)
	_, err := c.Put(ctx, "a", "1")
	must(t, err)
	must(t, m.Kill(ctx))
	if m.Running() {
		t.Fatal("killed and still running")
	}
	must(t, m.Start(ctx))
	got, err := c.Get(ctx, "a")
	must(t, err)
	if len(got.Kvs) != 1 {
		t.Fatal("the key is gone after kill -9 and start")
	}
	if err := m.Wipe(); err == nil {
		t.Fatal("a running server was wiped")
	}
	must(t, m.Stop(ctx))
	must(t, m.Wipe())
	must(t, m.Start(ctx))
	got, err = c.Get(ctx, "a")
	must(t, err)
	if len(got.Kvs) != 0 {
		t.Fatal("the key survived the wipe")
	}
}

func TestPausedServerIsSilent(t *testing.T) {
	m := member(t, "")
	must(t, m.Start(t.Context()))
	c := client(t, m)
	must(t, m.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "a"); err == nil {
		t.Fatal("a paused server answered")
	}
	must(t, m.Resume())
	_, err := c.Get(t.Context(), "a")
	must(t, err)
}

func TestPauseReturnsWhenAllHasStopped(t *testing.T) {
	m := member(t, "")
	must(t, m.Start(t.Context()))
	for range 200 {
		must(t, m.Pause())
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", m.Process().Pid()))
		must(t, err)
		for _, path := range stats {
			raw, err := os.ReadFile(path)
			must(t, err)
			if _, state, _ := strings.Cut(string(raw), ") "); !strings.HasPrefix(state, "T") {
				t.Fatalf("a thread of a paused server is not stopped: %s", raw)
			}
		}
		must(t, m.Resume())
	}
}

func TestStartOfARunningServerKeepsIt(t *testing.T) {
	ctx := t.Context()
	m := member(t, "")
	must(t, m.Start(ctx))
	pid := m.Process().Pid()
	must(t, m.Start(ctx))
	if m.Process().Pid() != pid {
		t.Fatalf("a second server was started: process %d, then %d", pid, m.Process().Pid())
	}
	must(t, m.Kill(ctx))
	c := client(t, m)
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "a"); err == nil {
		t.Fatal("something answers after the server was killed")
	}
}

func TestDefragmentShrinksTheData(t *testing.T) {
	ctx := t.Context()
	m := member(t, "")
	must(t, m.Start(ctx))
	c := client(t, m)
	var last int64
	for range 50 {
		resp, err := c.Put(ctx, "a", strings.Repeat("x", 100<<10))
		must(t, err)
		last = resp.Header.Revision
	}
	_, err := c.Compact(ctx, last, clientv3.WithCompactPhysical())
	must(t, err)
	before, err := c.Status(ctx, m.Endpoint())
	must(t, err)
	must(t, m.Defragment(ctx))
	after, err := c.Status(ctx, m.Endpoint())
	must(t, err)
	if after.DbSize >= before.DbSize {
		t.Fatalf("%d bytes before, %d after", before.DbSize, after.DbSize)
	}
}

func TestShortLeaseExpires(t *testing.T) {
	ctx := t.Context()
	m := member(t, "")
	must(t, m.Start(ctx))
	c := client(t, m)
	lease, err := c.Grant(ctx, 1)
	must(t, err)
	if lease.TTL != 1 {
		t.Fatalf("asked for 1 s, got %d", lease.TTL)
	}
	_, err = c.Put(ctx, "a", "1", clientv3.WithLease(lease.ID))
	must(t, err)
	start := time.Now()
	for resp := range c.Watch(ctx, "a", clientv3.WithRev(lease.Revision)) {
		for _, e := range resp.Events {
			if e.Type == clientv3.EventTypeDelete {
				took := time.Since(start)
				t.Logf("a lease of 1 s expired after %s", took.Round(10*time.Millisecond))
				if took > 3*time.Second {
					t.Fatalf("took %s", took)
				}
				return
			}
		}
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	err := member(t, "loud").Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "loud") {
		t.Fatalf("want the server's own words about log level loud, got: %v", err)
	}
}

func BenchmarkStart(b *testing.B) {
	m := member(b, "")
	for b.Loop() {
		must(b, m.Start(b.Context()))
		must(b, m.Kill(b.Context()))
		must(b, m.Wipe())
	}
}
