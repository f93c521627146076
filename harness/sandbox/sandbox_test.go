package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/sandbox"
)

// This test binary plays two parts: started with a first argument "payload" it enters a sandbox and does
// there what the second says; otherwise it is the test, which stays outside.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "payload" {
		sandbox.Enter()
		os.Exit(payload(os.Args[2]))
	}
	os.Exit(m.Run())
}

func payload(what string) int {
	switch what {
	case "exit7":
		return 7
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		if err != nil {
			return 1
		}
		return 0
	case "die":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	case "orphans":
		return orphans()
	case "signals":
		return count(os.Stdout)
	case "show":
		fmt.Printf("pid %d uid %d inside %t tmp %s\n", os.Getpid(), os.Getuid(), sandbox.Inside(), os.TempDir())
		return 0
	case "fill":
		return fill()
	case "linger":
		return linger()
	}
	return 99
}

// outer prepares this binary as a program that enters a sandbox.
func outer(tb testing.TB, what string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return exec.Command(self, "payload", what)
}

// exit runs a command and returns its output and exit code.
func exit(tb testing.TB, cmd *exec.Cmd) (string, int) {
	tb.Helper()
	out, err := cmd.CombinedOutput()
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) {
		tb.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestExitCodesPassThrough(t *testing.T) {
	if out, code := exit(t, outer(t, "exit7")); code != 7 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := exit(t, outer(t, "die")); code != 128+9 {
		t.Errorf("exit code %d after SIGKILL inside\n%s", code, out)
	}
}

func TestStdinPassesThrough(t *testing.T) {
	cmd := outer(t, "cat")
	cmd.Stdin = strings.NewReader("hello")
	if out, code := exit(t, cmd); code != 0 || out != "hello" {
		t.Errorf("%q, exit code %d", out, code)
	}
}

func TestInsideIsARootOfItsOwn(t *testing.T) {
	out, _ := exit(t, outer(t, "show"))
	if !strings.Contains(out, "uid 0 inside true tmp /run/nemesh/tmp") {
		t.Error(out)
	}
}

// orphans leaves children behind, whose parent then becomes the init, and looks whether it collects them.
func orphans() int {
	for range 20 {
		if err := exec.Command("/bin/sh", "-c", "(exit 0) & (sleep 0.01) & exit 0").Run(); err != nil {
			return 1
		}
	}
	deadline := time.After(5 * time.Second)
	for {
		zombies := 0
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, s := range stats {
			if raw, err := os.ReadFile(s); err == nil && bytes.Contains(raw, []byte(") Z ")) {
				zombies++
			}
		}
		if zombies == 0 && len(stats) <= 2 {
			return 0
		}
		select {
		case <-deadline:
			return 1
		case <-time.After(time.Millisecond):
		}
	}
}

func TestOrphansAreReaped(t *testing.T) {
	if out, code := exit(t, outer(t, "orphans")); code != 0 {
		t.Errorf("zombies or orphans are left\n%s", out)
	}
}

// count prints each interrupt that arrives and ends with the number of them at SIGTERM.
func count(w io.Writer) int {
	signals := make(chan os.Signal, 16)
	notify(signals)
	fmt.Fprintln(w, "ready")
	n := 0
	for s := range signals {
		if s == syscall.SIGTERM {
			return n
		}
		n++
		fmt.Fprintln(w, "interrupt")
	}
	return 99
}

func TestEachSignalArrivesOnce(t *testing.T) {
	cmd := outer(t, "signals")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := newLines(out)
	lines.expect(t, "ready")
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		lines.expect(t, "interrupt")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("%d interrupts arrived for 3", code)
	}
}

// fill writes until the disk is full.
func fill() int {
	err := os.WriteFile(filepath.Join(sandbox.Dir, "big"), make([]byte, 8<<20), 0o644)
	fmt.Println(err)
	if errors.Is(err, syscall.ENOSPC) {
		return 0
	}
	return 1
}

func TestSizeOfTheTmpfs(t *testing.T) {
	cmd := outer(t, "fill")
	cmd.Env = append(os.Environ(), sandbox.SizeEnv+"=4m")
	if out, code := exit(t, cmd); code != 0 {
		t.Errorf("the disk is not full\n%s", out)
	}
	cmd = outer(t, "show")
	cmd.Env = append(os.Environ(), sandbox.SizeEnv+"=plenty")
	if out, code := exit(t, cmd); code != 2 || !strings.Contains(out, "write it like 64m") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A user namespace in which no further one may be made is a machine that refuses them.
func TestRefusalNamesTheWaysOn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs a second user id to be refused as, which only root can map")
	}
	script := "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --reuid=1 --clear-groups " +
		strings.Join(outer(t, "show").Args, " ")
	shell := exec.Command("/bin/sh", "-c", script)
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
	shell.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true,
	}
	out, code := exit(t, shell)
	if code != 2 || !strings.Contains(out, "Two ways on") || !strings.Contains(out, "sudo") ||
		!strings.Contains(out, "user.max_user_namespaces") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// linger makes what a world makes, and stays.
func linger() int {
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return 1
	}
	fmt.Println("ready")
	_ = cmd.Wait()
	return 0
}

// host is what this machine has of its own: links, mounts, and files where worlds are laid out.
func host(tb testing.TB) map[string]bool {
	tb.Helper()
	have := map[string]bool{}
	links, _ := os.ReadDir("/sys/class/net")
	for _, l := range links {
		have["link "+l.Name()] = true
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		have["mount "+line] = true
	}
	for _, pattern := range []string{"/run/nemesh*", filepath.Join(os.TempDir(), "nemesh*")} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			have["file "+f] = true
		}
	}
	return have
}

// markEnv names the environment variable by which the processes of one run are told from all others.
const markEnv = "NEMESH_KILL9_MARK"

// processes lists those that carry a mark, with their namespaces, and those of the given namespaces that any
// process is in which started before a moment (a number of a namespace that is gone is given again).
func processes(mark string, of map[string]bool, before int64) (pids, namespaces map[string]bool) {
	pids, namespaces = map[string]bool{}, map[string]bool{}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if started(p) > before {
			continue
		}
		env, err := os.ReadFile(p + "/environ")
		marked := err == nil && bytes.Contains(env, []byte(markEnv+"="+mark))
		if marked {
			line, _ := os.ReadFile(p + "/cmdline")
			pids["process "+filepath.Base(p)+" "+strings.ReplaceAll(string(line), "\x00", " ")] = true
		}
		for _, kind := range []string{"net", "mnt", "pid", "user"} {
			if ns, err := os.Readlink(p + "/ns/" + kind); err == nil && (marked || of[ns]) {
				namespaces[ns] = true
			}
		}
	}
	return pids, namespaces
}

// started returns when a process started, in ticks since boot (proc(5), field 22 of stat). One that has
// ended and only waits for its new parent to notice has never started.
func started(proc string) int64 {
	raw, err := os.ReadFile(proc + "/stat")
	_, rest, ok := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if err != nil || !ok || len(fields) < 20 || fields[0] == "Z" {
		return math.MaxInt64
	}
	ticks, _ := strconv.ParseInt(fields[19], 10, 64)
	return ticks
}

// ticks returns the present moment on the same clock, of 100 ticks a second.
func ticks(tb testing.TB) int64 {
	tb.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		tb.Fatal(err)
	}
	return ts.Nano() / 10_000_000
}

// TestKill9LeavesNothing kills the outer process with SIGKILL at random moments and looks for what is left.
// It is run NEMESH_KILL9 times, 10 if that is not set; NEMESH_KILL9_COMMAND replaces the program.
func TestKill9LeavesNothing(t *testing.T) {
	times, within := 10, 60*time.Millisecond
	if text := os.Getenv("NEMESH_KILL9"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("NEMESH_KILL9=%q is not a number of times", text)
		}
		times = n
	}
	command := os.Getenv("NEMESH_KILL9_COMMAND")
	if command != "" {
		within = 8 * time.Second
	}
	before := host(t)
	_, own := processes("nobody's", nil, 0)
	for _, kind := range []string{"net", "mnt", "pid", "user"} {
		if ns, err := os.Readlink("/proc/self/ns/" + kind); err == nil {
			own[ns] = true
		}
	}
	most := 0
	for i := range times {
		cmd := outer(t, "linger")
		if command != "" {
			cmd = exec.Command("/bin/sh", "-c", "exec "+command)
			cmd.Dir = "../.."
		}
		mark := fmt.Sprintf("%d-%d", os.Getpid(), i)
		cmd.Env = append(os.Environ(), markEnv+"="+mark)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rand.Int64N(int64(within)))
		wait(t, after)
		pids, namespaces := processes(mark, nil, math.MaxInt64)
		most = max(most, len(pids))
		for ns := range own {
			delete(namespaces, ns)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		killed := ticks(t)
		when := fmt.Sprintf("kill -9 number %d, after %s", i+1, after)
		nothingLeft(t, when, func() map[string]bool {
			left, held := processes(mark, namespaces, killed)
			for ns := range held {
				if namespaces[ns] {
					left["namespace "+ns] = true
				}
			}
			for what := range host(t) {
				if !before[what] {
					left[what] = true
				}
			}
			return left
		})
	}
	t.Logf("%d times killed within %s, with up to %d processes; nothing left each time", times, within, most)
}

// wait lets a random time pass: here time itself is what is tested.
func wait(tb testing.TB, d time.Duration) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	defer cancel()
	<-ctx.Done()
}

func nothingLeft(tb testing.TB, when string, look func() map[string]bool) {
	tb.Helper()
	for deadline := time.After(5 * time.Second); ; {
		left := look()
		if len(left) == 0 {
			return
		}
		select {
		case <-deadline:
			tb.Fatalf("%s left on the host:\n%s", when, strings.Join(slices.Sorted(maps.Keys(left)), "\n"))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func BenchmarkEnter(b *testing.B) {
	for b.Loop() {
		if out, code := exit(b, outer(b, "show")); code != 0 {
			b.Fatal(out)
		}
	}
}
