package cluster_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
)

// BenchmarkCost measures agents: N started at once until every node has a route, a neighbour and a
// forwarding entry for all others (all-s), one more, when all is at rest, until all others know it (join-s),
// and for each agent the CPU time with its children (cpu-s), the memory (MB) and the CPU time of an idle
// second (idle-ms). Another agent than the overlay's own is named in NEMESH_AGENT, and agents that died of a
// lost race are counted (died).
func BenchmarkCost(b *testing.B) {
	for _, n := range []int{10, 30, 50} {
		b.Run(fmt.Sprintf("N=%d", n), func(b *testing.B) {
			for b.Loop() {
				measureCost(b, n)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func measureCost(b *testing.B, n int) {
	ctx := b.Context()
	agent, err := driver.Open(driver.FromEnv(), os.Getenv(build.Env))
	if err != nil {
		b.Fatal(err)
	}
	opts := cluster.Options{Agent: agent, Nodes: n + 1, PodsPerNode: -1}
	for i := range n + 1 {
		opts.Idle = append(opts.Idle, fmt.Sprintf("node%02d", i+1))
	}
	c := world(b, opts)
	began := time.Now()
	launch(ctx, b, c, opts.Idle[:n])
	died := untilKnown(ctx, b, c, opts.Idle[:n], n-1)
	b.ReportMetric(time.Since(began).Seconds(), "all-s")

	settle(ctx, 2*time.Second)
	began = time.Now()
	launch(ctx, b, c, opts.Idle[n:])
	died += untilKnown(ctx, b, c, opts.Idle, n)
	b.ReportMetric(time.Since(began).Seconds(), "join-s")
	b.ReportMetric(float64(died), "died")

	// What they have spent until then, and what they spend when nothing happens.
	settle(ctx, 2*time.Second)
	var spent, memory float64
	agents := make([]*node.Process, n) // as they run now: those that died have successors
	for i, name := range opts.Idle[:n] {
		if agents[i], err = c.Agent(name); err != nil {
			b.Fatal(err)
		}
	}
	for _, a := range agents {
		spent += cpuOf(b, a)
		memory += residentOf(b, a)
	}
	const idle = 5 * time.Second
	settle(ctx, idle)
	later := 0.0
	for _, a := range agents {
		later += cpuOf(b, a)
	}
	each := float64(len(agents))
	b.ReportMetric(spent/each, "cpu-s")
	b.ReportMetric(memory/each, "MB")
	b.ReportMetric((later-spent)/each/idle.Seconds()*1000, "idle-ms")
}

// settle lets time pass that is itself measured.
func settle(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func launch(ctx context.Context, b *testing.B, c *cluster.Cluster, nodes []string) {
	b.Helper()
	var all errgroup.Group
	for _, name := range nodes {
		all.Go(func() error {
			_, err := c.LaunchAgent(ctx, name)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

// untilKnown waits until each node has entries for all its peers. It looks seldom, since looking costs time
// that the agents need. Agents that end are started again, as a supervisor would, and counted.
func untilKnown(ctx context.Context, b *testing.B, c *cluster.Cluster, nodes []string, peers int) int {
	b.Helper()
	died := 0
	deadline := time.Now().Add(2 * time.Minute)
	for _, name := range nodes {
		for {
			died += revive(ctx, b, c, nodes)
			missing, err := unknown(c, name, peers)
			if err != nil {
				b.Fatal(err)
			}
			if missing == "" {
				break
			}
			if time.Now().After(deadline) {
				b.Fatalf("%s does not know its peers: %s", name, missing)
			}
			settle(ctx, 20*time.Millisecond)
		}
	}
	return died
}

// revive starts the agents again that have ended, and counts them.
func revive(ctx context.Context, b *testing.B, c *cluster.Cluster, nodes []string) (died int) {
	b.Helper()
	for _, name := range nodes {
		if a, err := c.Agent(name); err != nil {
			b.Fatal(err)
		} else if !a.Running() {
			died++
			launch(ctx, b, c, []string{name})
		}
	}
	return died
}

// unknown says of what a node has too few. It asks for no more than that, since asking takes time that is
// measured as the agents'.
func unknown(c *cluster.Cluster, name string, peers int) (string, error) {
	n, err := c.Node(name)
	if err != nil {
		return "", err
	}
	hops, err := observe.Gateways(n.NetNS())
	if err != nil {
		return "", err
	}
	if len(hops) < peers {
		return fmt.Sprintf("%d routes of %d", len(hops), peers), nil
	}
	neighbours, err := observe.Neighbours(n.NetNS(), c.Device()) // the device is there, since routes are
	if err != nil {
		return "", err
	}
	resolved := 0
	for _, l := range neighbours {
		if slices.Contains(hops, l.IP) {
			resolved++
		}
	}
	if resolved < peers {
		return fmt.Sprintf("%d next hops with a neighbour entry of %d", resolved, peers), nil
	}
	entries, err := observe.FDB(n.NetNS(), c.Device())
	if err != nil {
		return "", err
	}
	if len(entries) < peers {
		return fmt.Sprintf("%d forwarding entries of %d", len(entries), peers), nil
	}
	return "", nil
}

// cpuOf returns the seconds of CPU time that a process and its ended children have used (proc_pid_stat(5)).
func cpuOf(b *testing.B, p *node.Process) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return 0 // it has died
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+2:]))
	ticks := 0.0
	for _, f := range fields[11:15] {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += v
	}
	return ticks / 100
}

// residentOf returns the megabytes of memory that a process holds.
func residentOf(b *testing.B, p *node.Process) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Pid()))
	if err != nil {
		return 0
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(raw))[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
