package enter_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/enter"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

// This binary plays two parts in the sandbox: the test, and with a first argument "enter" whoever enters.
func TestMain(m *testing.M) {
	sandbox.Enter()
	if len(os.Args) > 3 && os.Args[1] == "enter" {
		os.Exit(enterNode(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

func enterNode(name string, args []string) int {
	all, err := enter.Find()
	if err == nil {
		var w enter.World
		if w, err = enter.Choose(all, "", name); err == nil {
			var code int
			if code, err = w.Enter(name, args); err == nil {
				return code
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 99
}

// world builds a world of one machine and serves it.
func world(t *testing.T) *enter.Server {
	t.Helper()
	dir, err := os.MkdirTemp(sandbox.Dir, "world-")
	if err != nil {
		t.Fatal(err)
	}
	sw, err := underlay.NewSwitch(netip.MustParsePrefix("192.168.200.1/24"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := node.New(t.Context(), node.Options{
		Name: "node01", Dir: filepath.Join(dir, "node01"), Switch: sw,
		Addr: netip.MustParsePrefix("192.168.200.201/24"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := enter.Listen(filepath.Join(dir, enter.Socket),
		func() enter.World {
			return enter.World{ID: "42", Scenario: "a test", Nodes: []string{"node01", "node02"}}
		},
		func(name string) (*node.Machine, error) {
			if name == "node01" {
				return m, nil
			}
			return nil, errors.New(name + " is switched off")
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), m.Close(), sw.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func entering(args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", append([]string{"enter"}, args...)...)
}

func TestCommandsRunOnTheMachine(t *testing.T) {
	world(t)
	for _, c := range []struct {
		args []string
		in   string
		want string
		code int
	}{
		{args: []string{"node01", "cat", "/proc/thread-self/net/dev"}, want: "eth0:"},
		{args: []string{"node01", "sh", "-c", "cat; exit 7"}, in: "hello", want: "hello", code: 7},
		{args: []string{"node01", "sh", "-c", "kill -9 $$"}, code: 128 + 9},
		{args: []string{"node01", "sh", "-c", "test ! -e /run/nemesh && echo $NEMESH_NODE"}, want: "node01"},
		{args: []string{"node01", "no-such-program"}, want: "not found", code: 127},
		{args: []string{"node02", "true"}, want: "node02 is switched off", code: 99},
		{args: []string{"node03", "true"}, want: `no machine "node03"`, code: 99},
	} {
		cmd := entering(c.args...)
		cmd.Stdin = strings.NewReader(c.in)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: exit code %d, want %d\n%s", c.args, code, c.code, out)
		}
	}
}

// TestCloseEndsCommands closes the server while a command runs that would go on.
func TestCloseEndsCommands(t *testing.T) {
	s := world(t)
	cmd := entering("node01", "sh", "-c", "echo started; sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not close while a command runs")
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+9 {
		t.Errorf("the command ended with %v", err)
	}
}

func TestChoose(t *testing.T) {
	one := enter.World{ID: "1", Scenario: "first", Nodes: []string{"node01"}}
	two := enter.World{ID: "2", Scenario: "second", Nodes: []string{"node01"}}
	for _, c := range []struct {
		all      []enter.World
		id, node string
		want     string // in the error
	}{
		{nil, "", "node01", "no world is running"},
		{[]enter.World{one}, "", "node01", ""},
		{[]enter.World{one}, "", "node09", `no machine "node09"`},
		{[]enter.World{one, two}, "", "node01", "second"},
		{[]enter.World{one, two}, "2", "node01", ""},
		{[]enter.World{one, two}, "3", "node01", "first"},
	} {
		w, err := enter.Choose(c.all, c.id, c.node)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d worlds, id %q, %s: %v", len(c.all), c.id, c.node, err)
		}
		if err == nil && c.id != "" && w.ID != c.id {
			t.Errorf("world %s was chosen for %s", w.ID, c.id)
		}
	}
}
