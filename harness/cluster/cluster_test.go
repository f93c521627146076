package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
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

func ours() driver.Ours { return driver.Ours{Bin: os.Getenv(build.Env)} }

// agent is an overlay whose agent is another program.
type agent struct {
	driver.Ours
	path string
	args []string
}

func (a agent) Command(driver.Spec) node.Command {
	return node.Command{Name: "agent", Path: a.path, Args: a.args}
}

func world(tb testing.TB, opts cluster.Options) *cluster.Cluster {
	tb.Helper()
	c, err := cluster.New(tb.Context(), opts, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func TestAgentsThatDoNotWork(t *testing.T) {
	for name, c := range map[string]struct {
		driver driver.Driver
		want   []string
	}{
		"no such folder": {driver.Ours{Bin: "/nowhere"}, []string{"/nowhere/overlayd is missing", "make build"}},
		"missing":        {agent{ours(), "/nowhere/agent", nil}, []string{"no such file", "make build"}},
		"exits at once": {
			agent{ours(), "/bin/sh", []string{"-c", "echo I have no licence; exit 4"}},
			[]string{"exit status 4", "I have no licence"},
		},
		"unknown flag": {
			driver.Ours{Bin: os.Getenv(build.Env), Args: []string{"--wrong"}},
			[]string{"exit status 64", "flag provided but not defined: -wrong"},
		},
		"unknown defect": {
			driver.Ours{Bin: os.Getenv(build.Env), Defects: []string{"rust"}},
			[]string{`defect "rust" is not known`, "forget-subnet, "},
		},
		"defect of the normal build": {
			driver.Ours{Bin: os.Getenv(build.Env), Args: []string{"--defect=forget-subnet"}},
			[]string{"this is the normal build"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cluster.New(t.Context(), cluster.Options{Agent: c.driver, Nodes: 2}, nil)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in: %v", want, err)
				}
			}
			clean(t)
		})
	}
}

// clean fails the test if a world has left files or processes in the sandbox.
func clean(tb testing.TB) {
	tb.Helper()
	if left, _ := filepath.Glob(sandbox.Dir + "/world-*"); len(left) > 0 {
		tb.Errorf("left: %v", left)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, l := range lines {
		if raw, err := os.ReadFile(l); err == nil && (strings.Contains(string(raw), "overlayd") ||
			strings.HasPrefix(string(raw), "nemesh-etcd")) {
			tb.Errorf("left: %s", raw)
		}
	}
}

func TestExpectationsThatFailAreShown(t *testing.T) {
	c := world(t, cluster.Options{Agent: ours(), Nodes: 2})
	if err := c.StartMesh(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods := c.Pods()
	err := c.Expect(t.Context(), cluster.Each(pods[:1], pods[1:], false)...)
	var wrong *cluster.UnreachableError
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"expected", "actual", "[.]", "wrong: node01-pod1 → node02-pod1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in\n%s", want, err)
		}
	}
}

func TestFaultsComposeAndHealInAnyOrder(t *testing.T) {
	ctx := t.Context()
	c := world(t, cluster.Options{Agent: ours(), Nodes: 2})
	cut, kill, pause := fault.CutFromEtcd{Node: "node01"}, fault.AgentKill{Node: "node02"}, fault.EtcdPause{}
	if err := c.Inject(ctx, cut, kill, pause); err != nil {
		t.Fatal(err)
	}
	for _, f := range []fault.Fault{kill, cut, pause} {
		if _, err := c.HealOne(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WaitConverged(ctx); err != nil {
		t.Error(err)
	}
	if s := c.Summary(); len(s.Broke) != 3 || len(s.Active) != 0 || s.Healed.IsZero() {
		t.Errorf("%+v", s)
	}
	err := c.Inject(ctx, fault.AgentKill{Node: "node09"})
	if err == nil || !strings.Contains(err.Error(), "node01 to node02") {
		t.Errorf("a fault on a node that is not there: %v", err)
	}
}

func TestFileThatIsNotThereIsNotProven(t *testing.T) {
	c := world(t, cluster.Options{Agent: ours(), Nodes: 1})
	err := c.Inject(t.Context(), fault.FileDeleted{Node: "node01", Path: "/run/nothing"})
	if !errors.Is(err, fault.ErrNotProven) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkCluster builds four nodes with etcd, agents and a pod each, until all pairs answer.
func BenchmarkCluster(b *testing.B) {
	for b.Loop() {
		c, err := cluster.New(b.Context(), cluster.Options{Agent: ours()}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.StartMesh(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// A pair that should answer is waited for, and what the first round has lost is not counted.
func TestExpectWaitsForPairs(t *testing.T) {
	ctx := t.Context()
	c, err := cluster.New(ctx, cluster.Options{Nodes: 2, Agent: ours()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	isolated := fault.Isolated(c, "node01")
	if err := c.Inject(ctx, isolated); err != nil {
		t.Fatal(err)
	}
	pods := c.Pods()
	if err := c.Expect(ctx, cluster.Each(pods[:1], pods[1:], false)...); err != nil {
		t.Fatal(err)
	}
	healed := make(chan error, 1)
	go func() {
		<-time.After(300 * time.Millisecond) // within the first round, which waits a second for each echo
		_, err := c.HealOne(ctx, isolated)
		healed <- err
	}()
	if err := c.Expect(ctx, cluster.Each(pods[:1], pods[1:], true)...); err != nil {
		t.Error(err)
	}
	if err := <-healed; err != nil {
		t.Error(err)
	}
}
