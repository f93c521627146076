package recorder_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/recorder"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/reports/record"
)

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

func TestFailedExpectationIsFollowed(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	rec, err := record.Open(filepath.Join(dir, "record.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorder.Recorder
	agent := driver.Ours{Bin: os.Getenv(build.Env)}
	c, err := cluster.New(ctx, cluster.Options{Agent: agent, Nodes: 2}, rec.For("a world"), r.Watch)
	defer r.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.StartMesh(ctx); err != nil {
		t.Fatal(err)
	}
	if traces, err := r.FollowWrong(ctx, dir, "a world"); err != nil || len(traces) != 0 {
		t.Errorf("nothing is wrong: %v, %v", traces, err)
	}
	trace, err := r.Follow(ctx, "node01", "node02-pod1")
	if err != nil || trace.Cause != follow.Delivered {
		t.Errorf("%s, %v", trace.Sentence, err)
	}

	// Agents would put the entry back, and the leases are told even when etcd is away.
	err = c.Inject(ctx, fault.EtcdStop{}, fault.AgentKill{Node: "node01"})
	if err != nil {
		t.Fatal(err)
	}
	loseFDB(t, c, "node01")
	pods := c.Pods()
	shortly, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := c.Expect(shortly, cluster.Each(pods[:1], pods[1:], true)...); err == nil {
		t.Fatal("the pods reach each other without a forwarding entry")
	}
	traces, err := r.FollowWrong(ctx, dir, "a world: its FDB")
	if err != nil || len(traces) != 2 {
		t.Fatalf("%d traces, %v", len(traces), err)
	}
	for i, want := range []string{
		"request lost on node01 at flannel.1: no FDB entry for ",
		"reply lost on node01 at flannel.1: no FDB entry for ",
	} {
		if s := traces[i].Sentence; !strings.Contains(s, want) || !strings.Contains(s, "says 192.168.200.202") {
			t.Errorf("got %s, want %s", s, want)
		}
	}
	for _, name := range []string{"trace-a-world-its-FDB-1.pcapng", "trace-a-world-its-FDB-2.pcapng"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	checkRecorded(t, filepath.Join(dir, "record.jsonl"), traces)
}

// checkRecorded looks for the traces at the end of those in the record.
func checkRecorded(t *testing.T, path string, traces []follow.Trace) {
	t.Helper()
	events, err := record.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []*record.Trace
	for _, e := range events {
		if e.Kind == record.KindTrace {
			recorded = append(recorded, e.Trace)
		}
	}
	if len(recorded) != len(traces)+1 {
		t.Fatalf("%d traces in the record", len(recorded))
	}
	for i, want := range traces {
		got := recorded[i+1]
		if got.Sentence != want.Sentence || got.Cause != string(want.Cause) || len(got.Hops) != len(want.Hops) {
			t.Errorf("recorded %+v", got)
		}
		for _, h := range got.Hops {
			if h.Seen && (h.At <= 0 || h.At > record.Now()) {
				t.Errorf("hop at %d: %+v", h.At, h)
			}
		}
	}
}

// loseFDB removes the forwarding entries of a node's VXLAN device.
func loseFDB(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	m, err := c.Machine(name)
	if err != nil {
		t.Fatal(err)
	}
	link, err := m.Netlink().LinkByName(c.Device())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := m.Netlink().NeighList(link.Attrs().Index, unix.AF_BRIDGE)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d forwarding entries, %v", len(entries), err)
	}
	for _, e := range entries {
		e.Family, e.Flags = unix.AF_BRIDGE, netlink.NTF_SELF
		if err := m.Netlink().NeighDel(&e); err != nil {
			t.Fatal(err)
		}
	}
}
