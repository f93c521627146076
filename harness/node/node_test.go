package node_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
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

func newSwitch(tb testing.TB) *underlay.Switch {
	tb.Helper()
	sw, err := underlay.NewSwitch(netip.MustParsePrefix("10.0.0.1/16"))
	must(tb, err)
	tb.Cleanup(func() { _ = sw.Close() })
	return sw
}

func newMachine(tb testing.TB, sw *underlay.Switch, i int, output func(node.Line)) *node.Machine {
	tb.Helper()
	dir, err := os.MkdirTemp(sandbox.Dir, "node-")
	must(tb, err)
	m, err := node.New(tb.Context(), node.Options{
		Name: fmt.Sprintf("m%d", i), Dir: dir, Switch: sw, Output: output,
		Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 16),
	})
	must(tb, err)
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// run runs a shell command on a machine and returns its output.
func run(tb testing.TB, m *node.Machine, script string) string {
	tb.Helper()
	var mu sync.Mutex
	var out []byte
	must(tb, m.Do(func() error {
		mu.Lock()
		defer mu.Unlock()
		var err error
		out, err = exec.Command("/bin/sh", "-c", script).CombinedOutput()
		return err
	}))
	return strings.TrimSpace(string(out))
}

func TestMachinesHaveTheirOwnFiles(t *testing.T) {
	sw := newSwitch(t)
	a, b := newMachine(t, sw, 11, nil), newMachine(t, sw, 12, nil)
	for _, dir := range []string{"/run", "/var/lib", "/etc/cni"} {
		run(t, a, "echo a > "+dir+"/who")
		run(t, b, "echo b > "+dir+"/who")
		if got := run(t, a, "cat "+dir+"/who"); got != "a" {
			t.Errorf("%s of a says %q", dir, got)
		}
		raw, err := os.ReadFile(a.Path(dir + "/who"))
		if err != nil || string(raw) != "a\n" {
			t.Errorf("%s of a, from outside: %q, %v", dir, raw, err)
		}
		if _, err := os.Stat(dir + "/who"); err == nil {
			t.Errorf("%s/who is seen outside the machines", dir)
		}
	}
	if got := run(t, a, "head -c 5 /etc/passwd"); got != "root:" {
		t.Errorf("/etc/passwd of the host begins with %q on a machine", got)
	}
}

func TestMachinesReachEachOther(t *testing.T) {
	sw := newSwitch(t)
	a, b := newMachine(t, sw, 11, nil), newMachine(t, sw, 12, nil)
	if _, err := b.ReadSysctl("net.ipv4.conf.eth0.forwarding"); err != nil {
		t.Error(err)
	}
	if err := dialTCP(a, b); err != nil {
		t.Error(err)
	}
}

// dialTCP asks b for a closed port; the refusal shows that packets go there and back.
func dialTCP(a, b *node.Machine) error {
	return a.Do(func() error {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer syscall.Close(fd)
		err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: 9, Addr: b.Addr().As4()})
		if err == syscall.ECONNREFUSED {
			return nil
		}
		return fmt.Errorf("connect: %w", err)
	})
}

func TestRebootKeepsTheDiskOnly(t *testing.T) {
	sw := newSwitch(t)
	m := newMachine(t, sw, 11, nil)
	p, err := m.Start(t.Context(), node.Command{Name: "sleep", Path: "/bin/sleep", Args: []string{"1000"}})
	must(t, err)
	_, err = m.AddNetNS("pod")
	must(t, err)
	run(t, m, "echo x > /run/gone; echo y > /var/lib/kept; echo z > /etc/cni/kept")
	must(t, m.PowerOff(t.Context()))
	must(t, m.PowerOn(t.Context()))
	if p.Running() || len(m.Processes()) != 0 {
		t.Error("a process survived the reboot")
	}
	if got := run(t, m, "ls /run; cat /var/lib/kept /etc/cni/kept"); got != "y\nz" {
		t.Errorf("after the reboot: %q", got)
	}
	if err := dialTCP(m, newMachine(t, sw, 12, nil)); err != nil {
		t.Error(err)
	}
}

func TestProcesses(t *testing.T) {
	sw := newSwitch(t)
	var mu sync.Mutex
	var lines []string
	m := newMachine(t, sw, 11, func(l node.Line) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, l.Process+": "+l.Text)
	})
	sh := func(script string) *node.Process {
		t.Helper()
		p, err := m.Start(t.Context(), node.Command{Name: "sh", Path: "/bin/sh", Args: []string{"-c", script}})
		must(t, err)
		return p
	}
	p := sh("echo one; echo two >&2; exit 3")
	if err := p.ExitErr(); err == nil || !strings.Contains(p.Unexpected("too early").Error(), "exit status 3") {
		t.Errorf("exit: %v, %v", err, p.Unexpected("too early"))
	}
	mu.Lock()
	if strings.Join(lines, ", ") != "sh: one, sh: two" {
		t.Errorf("output: %q", lines)
	}
	mu.Unlock()
	p = sh("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	waitLine(t, p)
	must(t, p.Terminate(t.Context(), 5*time.Second))
	if err := p.ExitErr(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	p = sh("sleep 1000 & echo $!; wait")
	child := waitLine(t, p)
	must(t, p.Kill(t.Context()))
	for deadline := time.After(5 * time.Second); ; {
		raw, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || strings.Contains(string(raw), ") Z ") {
			break
		}
		select {
		case <-deadline:
			t.Fatal("the child of a killed process lives on")
		case <-time.After(time.Millisecond):
		}
	}
}

// waitLine waits for the first line of a process and returns it.
func waitLine(tb testing.TB, p *node.Process) string {
	tb.Helper()
	for deadline := time.After(5 * time.Second); ; {
		if lines := p.Tail(1); len(lines) > 0 {
			return lines[0]
		}
		select {
		case <-deadline:
			tb.Fatal("the process says nothing")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestWhatCannotBeStartedSaysWhatToDo(t *testing.T) {
	m := newMachine(t, newSwitch(t), 11, nil)
	const dir = "/var/lib/"
	must(t, os.WriteFile(m.Path(dir+"foreign"), []byte("\x7fELF\x02\x01\x01 of no machine"), 0o755))
	must(t, os.WriteFile(m.Path(dir+"text"), []byte("hello"), 0o644))
	for path, want := range map[string]string{
		"missing": "make build", "foreign": "built for this architecture", "text": "chmod +x",
	} {
		_, err := m.Start(t.Context(), node.Command{Name: "agent", Path: dir + path})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", path, want, err)
		}
	}
}

func TestCutIsSilentAndHeals(t *testing.T) {
	sw := newSwitch(t)
	a, b, c := newMachine(t, sw, 11, nil), newMachine(t, sw, 12, nil), newMachine(t, sw, 13, nil)
	must(t, sw.Cut("m11", "m12"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- dialTCP(a, b) }()
	select {
	case err := <-answered:
		t.Fatalf("answered across a cut: %v", err)
	case <-ctx.Done():
	}
	must(t, dialTCP(a, c))
	must(t, sw.Heal("m11", "m12"))
	must(t, dialTCP(a, b))
}

func TestTakenPortsAndAddressesAreRefused(t *testing.T) {
	sw := newSwitch(t)
	m := newMachine(t, sw, 11, nil)
	_, err := node.New(t.Context(), node.Options{
		Name: "other", Dir: t.TempDir(), Switch: sw,
		Addr: netip.PrefixFrom(m.Addr(), 16),
	})
	if err == nil || !strings.Contains(err.Error(), "has the address 10.0.0.11 already") {
		t.Errorf("got %v", err)
	}
	_, err = node.New(t.Context(), node.Options{Name: "a-name-that-is-too-long", Dir: t.TempDir(), Switch: sw})
	if err == nil || !strings.Contains(err.Error(), "1 to 15 characters") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkMachines(b *testing.B) {
	for b.Loop() {
		sw := newSwitch(b)
		for i := 2; i < 202; i++ {
			newMachine(b, sw, i, nil)
		}
	}
}
