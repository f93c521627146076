package suite

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/enter"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/reports/record"
)

// failEnv makes this test binary a suite of one spec that fails: "early" before its time limit, "late" by
// it.
const failEnv = "NEMESH_TEST_FAIL"

const (
	// specLimit is the time limit of the spec. A world is built well within it.
	specLimit = 8 * time.Second
	// specGrace is what Ginkgo gives a node whose time is over.
	specGrace = time.Second
	// keptLonger is how long a world must stand after both are over.
	keptLonger = 2 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(failEnv) != "" {
		sandbox.Enter()
	}
	os.Exit(m.Run())
}

// idle is an overlay without an agent, for a world that only has to stand.
type idle struct{}

func (idle) Name() string                     { return "idle" }
func (idle) Check() error                     { return nil }
func (idle) Command(driver.Spec) node.Command { return node.Command{Name: "agent", Path: "/bin/true"} }
func (idle) SubnetFile() string               { return "/run/subnet.env" }
func (idle) Device(int) string                { return "idle0" }
func (idle) CNI() ([]byte, []string)          { return nil, nil }

// failingSuite runs the suite of one spec.
func failingSuite(t *testing.T, how string) {
	s := New()
	ginkgo.It("fails "+how, func(ctx ginkgo.SpecContext) {
		s.Cluster(ctx, Options{
			Nodes: 1, PodsPerNode: -1, Idle: []string{"node01"}, Agent: idle{},
		})
		if how == "late" {
			<-ctx.Done()
		}
		ginkgo.Fail("on purpose")
	}, ginkgo.SpecTimeout(specLimit))
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "failing")
}

// The world of a spec that fails stands until the keeper lets it go, when the spec's time limit is over, and
// the time that it was kept is not the spec's.
func TestKeep(t *testing.T) {
	if how := os.Getenv(failEnv); how != "" {
		failingSuite(t, how)
		return
	}
	for _, how := range []string{"early", "late"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, err := net.Listen("unix", filepath.Join(dir, "keep"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			began := time.Now()
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestKeep$", "-ginkgo.grace-period="+specGrace.String())
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = &said, &said
			cmd.Env = append(os.Environ(), failEnv+"="+how, KeepEnv+"="+l.Addr().String(),
				RecordEnv+"="+filepath.Join(dir, "record.jsonl"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			defer cmd.Process.Kill()

			world, held := keptWorld(t, l, ended, &said)
			defer held.Close()
			failed := time.Now()
			over := began.Add(specLimit)
			if failed.After(over) {
				over = failed
			}
			select {
			case <-ended:
				t.Fatalf("the world was kept for %s, not until it was let go\n%s", time.Since(failed), &said)
			case <-time.After(time.Until(over.Add(specGrace + keptLonger))):
			}
			if !stands(t, world) {
				t.Error("the world is gone before it was let go")
			}
			kept := time.Since(failed)
			held.Close()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Fatal("the suite does not end once its world is let go")
			}
			if code := cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d\n%s", code, &said)
			}
			if stands(t, world) {
				t.Error("the world stands after it was let go")
			}
			v := verdictOf(t, filepath.Join(dir, "record.jsonl"))
			if whole := time.Since(began) - kept; v.State != record.Failed || v.Took() > whole {
				t.Errorf("%s after %s, want failed after at most %s", v.State, v.Took(), whole)
			}
		})
	}
}

// keptWorld answers the suite's questions until it says that a world is kept, and returns the world's id and
// the connection that keeps it.
func keptWorld(t *testing.T, l net.Listener, ended <-chan error, said *strings.Builder) (string, net.Conn) {
	t.Helper()
	type news struct {
		Kept
		conn net.Conn
	}
	kept := make(chan news, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var k Kept
			if err := json.NewDecoder(conn).Decode(&k); err == nil && k.World == "" {
				err = json.NewEncoder(conn).Encode(true)
				_ = conn.Close()
				if err != nil {
					return
				}
				continue
			}
			kept <- news{k, conn}
			return
		}
	}()
	select {
	case n := <-kept:
		if !strings.Contains(n.Scenario, "fails") || !slices.Contains(n.Nodes, "node01") || n.Message == "" {
			t.Errorf("%+v", n.Kept)
		}
		return n.World, n.conn
	case err := <-ended:
		t.Fatalf("no world was kept: %v\n%s", err, said)
	case <-time.After(time.Minute):
		t.Fatal("no world was kept")
	}
	return "", nil
}

// stands tells whether a world is running.
func stands(t *testing.T, id string) bool {
	t.Helper()
	all, err := enter.Find()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(w enter.World) bool { return w.ID == id })
}

// verdictOf returns the only verdict of a record.
func verdictOf(t *testing.T, path string) record.Verdict {
	t.Helper()
	events, err := record.ReadFile(path)
	if err != nil && !errors.Is(err, record.ErrCut) {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Verdict != nil {
			return *e.Verdict
		}
	}
	t.Fatal("there is no verdict")
	return record.Verdict{}
}
