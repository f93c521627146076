package driver_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/reports/record"
)

// flanneldEnv names the environment variable with the path of a real flanneld.
const flanneldEnv = "NEMESH_FLANNELD"

func TestMain(m *testing.M) {
	fakeMain()
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

// fakeDriver describes the fake agent in a driver file, which edit, if given, changes.
func fakeDriver(tb testing.TB, mode string, edit ...func(string) string) driver.File {
	tb.Helper()
	dir := tb.TempDir()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, fakeName+mode)); err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(dir, "driver.yaml")
	text := strings.Join([]string{
		"name: fake",
		"program: ./" + fakeName + mode,
		"ready: subnet-file",
		"subnet_file: /run/fake/subnet.env",
		"key_prefix: /fake/network",
		`arguments: ["-etcd={etcd-endpoints}", "-prefix={etcd-prefix}", "-iface={uplink}", ` +
			`"-file=/run/fake/subnet.env"]`,
		"lacks: [lease-ttl, leave, owners, state, public-ip]",
		"cni_conf: list.json",
	}, "\n")
	for _, change := range edit {
		text = change(text)
	}
	list := `{"cniVersion":"1.1.0","name":"fake","plugins":[{"type":"overlay-cni",` +
		`"subnetFile":"/run/fake/subnet.env",` +
		`"delegate":{"isDefaultGateway":true}}]}`
	for path, text := range map[string]string{file: text, filepath.Join(dir, "list.json"): list} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	d, err := driver.ReadFile(file, ours())
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// flannel is the real flanneld; the test is skipped without one.
func flannel(t *testing.T) driver.Driver {
	t.Helper()
	path := os.Getenv(flanneldEnv)
	if path == "" {
		t.Skip("set " + flanneldEnv + " to a flanneld binary to run this")
	}
	return driver.Flannel{Ours: ours(), Path: path}
}

// TestContract is what a driver says, held against what its agent does.
func TestContract(t *testing.T) {
	for name, choose := range map[string]func(*testing.T) driver.Driver{
		"ours":         func(*testing.T) driver.Driver { return ours() },
		"fake by file": func(t *testing.T) driver.Driver { return fakeDriver(t, fakeGood) },
		"flannel":      flannel,
		"flannel by file": func(t *testing.T) driver.Driver {
			flannel(t)
			d, err := driver.ReadFile("../../fixtures/drivers/flannel.yaml", ours())
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) { contract(t, choose(t)) })
	}
}

func contract(t *testing.T, d driver.Driver) {
	ctx := t.Context()
	version, err := driver.VersionOf(ctx, d)
	if err != nil || version == "" {
		t.Errorf("version %q: %v", version, err)
	}
	c, err := cluster.New(ctx, cluster.Options{Agent: d, Nodes: 2}.WithEnv(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		clean(t)
	})
	if err := c.StartMesh(ctx); err != nil {
		t.Fatal(err)
	}
	subnet, err := c.SubnetOf("node01")
	if err != nil {
		t.Fatal(err)
	}
	leased, err := c.LeaseOf(ctx, "node01")
	if err != nil || leased != subnet {
		t.Errorf("the subnet file says %s and etcd %q: %v", subnet, leased, err)
	}
	m, err := c.Machine("node01")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Netlink().LinkByName(d.Device(1)); err != nil {
		t.Errorf("device %s: %v", d.Device(1), err)
	}
	// Started again, it is found ready again, and has not been before.
	if err := c.SwapAgent(ctx, "node01", d); err != nil {
		t.Fatal(err)
	}
	again, err := c.SubnetOf("node01")
	if err != nil || again != subnet {
		t.Errorf("subnet %s after a restart, %s before: %v", again, subnet, err)
	}
	report, err := c.Mesh().Settle(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if lost, sent := report.Lost(nil); lost > 0 || sent == 0 {
		t.Errorf("lost %d of %d over a restart", lost, sent)
	}
}

// TestAgentsThatMisbehave: a sentence with the agent's own last words, within the deadline, and nothing
// left.
func TestAgentsThatMisbehave(t *testing.T) {
	t.Cleanup(func() { clean(t) })
	for mode, want := range map[string][]string{
		fakeUsage:     {"fake on node", "ended", "exit status 2", "Usage of fake-agent", "endpoints of etcd"},
		fakeNever:     {"is ready", "/run/fake/subnet.env is not there", "waiting for a licence"},
		fakeDaemon:    {"ended", "exit status 0", "going into the background", "foreground"},
		fakeElsewhere: {"/run/fake/subnet.env is not there", "/run/elsewhere/subnet.env", "subnet 172.16."},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			c, err := cluster.New(t.Context(), cluster.Options{Agent: fakeDriver(t, mode), Nodes: 2}, nil)
			if err == nil {
				t.Fatal("it was taken for an agent that works", c.Close())
			}
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("want %q in: %v", w, err)
				}
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("it took %s to say so", took)
			}
		})
	}
}

func TestNotifyAloneIsWaitedFor(t *testing.T) {
	// The fake agent writes its subnet file and does not speak sd_notify, so a driver that promises it is
	// caught.
	d := fakeDriver(t, fakeGood, func(text string) string {
		return strings.Replace(text, "ready: subnet-file", "ready: notify", 1)
	})
	_, err := cluster.New(t.Context(), cluster.Options{Agent: d, Nodes: 1}, nil)
	if err == nil || !strings.Contains(err.Error(), "it has not said READY=1") ||
		!strings.Contains(err.Error(), "subnet 172.16.") {
		t.Errorf("%v", err)
	}
	clean(t)
}

// TestSupervisor: an agent that counts on being started again is, and only when nobody told it to end. The
// record knows of each start.
func TestSupervisor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	rec, err := record.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	d := fakeDriver(t, fakeGood, func(text string) string { return text + "\nrestart: true" })
	c, err := cluster.New(t.Context(), cluster.Options{Agent: d, Nodes: 1, PodsPerNode: -1}, rec)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, err := c.Agent("node01")
	if err != nil {
		t.Fatal(err)
	}
	// Not by way of the process, which would count as being told.
	if err := syscall.Kill(first.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var second *node.Process
	eventually(t, "another agent runs", func() bool {
		second, err = c.Agent("node01")
		return err == nil && second != first && second.Running()
	})
	if err := second.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAgent(t.Context(), "node01"); err != nil {
		t.Fatal(err)
	}
	third, err := c.Agent("node01")
	if err != nil || third == second {
		t.Errorf("the killed agent was not replaced by the one that was asked for: %v", err)
	}
	eventually(t, "the record holds every start", func() bool {
		events, err := record.ReadFile(path)
		if err != nil && !errors.Is(err, record.ErrCut) {
			t.Fatal(err)
		}
		var started []int
		for _, e := range events {
			if e.Process != nil && e.Process.Machine == "node01" && !e.Process.Exited {
				started = append(started, e.Process.Pid)
			}
		}
		return slices.Equal(started, []int{first.Pid(), second.Pid(), third.Pid()})
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited for this in vain: %s", what)
		}
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
		raw, err := os.ReadFile(l)
		if name := string(
			raw,
		); err == nil &&
			(strings.Contains(name, fakeName) || strings.Contains(name, "flanneld") ||
				strings.Contains(name, "overlayd") || strings.HasPrefix(name, "nemesh-etcd")) {
			tb.Errorf("left: %q", strings.ReplaceAll(name, "\x00", " "))
		}
	}
}

func TestAnotherArchitecture(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	const machineAt = 18 // e_machine in the ELF header (elf(5))
	raw[machineAt], raw[machineAt+1] = 22, 0
	path := filepath.Join(t.TempDir(), "flanneld")
	if err := os.WriteFile(path, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	err = driver.Flannel{Ours: ours(), Path: path}.Check()
	if err == nil || !strings.Contains(err.Error(), "is built for s390x") ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

func TestVersionIsAskedOfTheBinary(t *testing.T) {
	if v, err := driver.VersionOf(t.Context(), fakeDriver(t, fakeGood)); v != "v1.2.3" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	_, err := driver.VersionOf(t.Context(), fakeDriver(t, fakeUsage))
	if err == nil || !strings.Contains(err.Error(), "Usage of fake-agent") {
		t.Errorf("its own words are missing: %v", err)
	}
}

func TestMissingIptablesIsOneLine(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	err = driver.Flannel{Ours: ours(), Path: sh}.Check()
	if err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "needs the program iptables") {
		t.Errorf("%v", err)
	}
}
