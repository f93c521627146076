package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tailLines is how many of a process's last lines are kept for error messages.
	tailLines = 200
	// maxLine is where longer lines are cut, in bytes.
	maxLine = 64 << 10
)

// Command says what to run on a machine.
type Command struct {
	// Name is what the process is called in the record, such as "overlayd".
	Name string
	// Path is the absolute path of the program, and Argv0 its argv[0]; Path if empty.
	Path, Argv0 string
	// Args are its arguments. Env replaces the environment; nil keeps the harness's own.
	Args, Env []string
	// StopSignal is what asks the program to end; SIGTERM if 0.
	StopSignal syscall.Signal
	// Notify gives the program a socket on which it can say that it is ready (sd_notify(3)); see
	// Process.Ready.
	Notify bool
}

// Process is a program on a machine. It has a session of its own, so signals reach its children as well.
type Process struct {
	machine string
	command Command
	cmd     *exec.Cmd
	ready   chan struct{}
	exited  chan struct{}
	err     error // of Wait; read after exited is closed

	mu     sync.Mutex
	tail   []string
	paused int  // how many have paused it and not let it go on
	told   bool // to end, by a signal of the harness
}

// Start runs a program on the machine. The process outlives ctx; it ends when it exits, is killed, or the
// machine is switched off.
func (m *Machine) Start(ctx context.Context, c Command) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", c.Name, m.opts.Name, err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", c.Name, m.opts.Name, err)
	}
	cmd := exec.Command(c.Path, c.Args...)
	if c.Argv0 != "" {
		cmd.Args[0] = c.Argv0
	}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, "/", write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &Process{
		machine: m.opts.Name, command: c, cmd: cmd, ready: make(chan struct{}), exited: make(chan struct{}),
	}
	notified, err := p.listen(m)
	if err == nil {
		err = m.Do(cmd.Start)
	}
	write.Close()
	if err != nil {
		read.Close()
		notified()
		return nil, fmt.Errorf("start %s on %s: %w", c.Name, m.opts.Name, explainExec(c.Path, err))
	}
	m.mu.Lock()
	m.processes = append(m.processes, p)
	m.mu.Unlock()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		p.copyOutput(read, m.opts.Output)
	}()
	go func() {
		p.err = cmd.Wait()
		_ = read.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // a child may hold the pipe open
		<-copied
		notified()
		m.forget(p)
		close(p.exited)
	}()
	return p, nil
}

func explainExec(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: is %s built for this architecture?", err, path)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: build it first, with `make build`, or give the right path", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: is %s executable (chmod +x)?", err, path)
	default:
		return err
	}
}

func (m *Machine) forget(p *Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, q := range m.processes {
		if q == p {
			m.processes = append(m.processes[:i:i], m.processes[i+1:]...)
			return
		}
	}
}

// Processes lists what runs on the machine.
func (m *Machine) Processes() []*Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*Process(nil), m.processes...)
}

func (p *Process) copyOutput(from io.ReadCloser, output func(Line)) {
	defer from.Close()
	lines := bufio.NewReaderSize(from, maxLine)
	for {
		raw, err := lines.ReadSlice('\n')
		if text := strings.TrimRight(string(raw), "\r\n"); text != "" {
			p.keep(text)
			if output != nil {
				output(Line{Machine: p.machine, Process: p.command.Name, At: time.Now(), Text: text})
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (p *Process) keep(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tail) == tailLines {
		p.tail = append(p.tail[:0:0], p.tail[1:]...)
	}
	p.tail = append(p.tail, line)
}

// Name returns what the process is called in the record.
func (p *Process) Name() string { return p.command.Name }

// Command returns what was started, so that it can be started again.
func (p *Process) Command() Command { return p.command }

// Pid returns the process id, as seen in the sandbox.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// CPU returns the processor time that the process has used so far, with a resolution of 10 ms (proc(5),
// fields 14 and 15 of stat); 0 when it has ended.
func (p *Process) CPU() time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// Ready is closed when the process has sent READY=1 (sd_notify(3)). It stays open for a process that was
// started without Command.Notify or does not send READY=1.
func (p *Process) Ready() <-chan struct{} { return p.ready }

// Exited is closed when the process has ended and its output has been read.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Told reports whether the harness has sent the process a signal to end. If not, a process that has ended
// did so by itself.
func (p *Process) Told() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
}

// ExitErr returns how the process ended: nil for exit code 0, else an *exec.ExitError. It waits for the end.
func (p *Process) ExitErr() error {
	<-p.exited
	return p.err
}

// Unexpected returns an error for a process that ended when it should not have: when, how, and its last
// lines. It waits for the end.
func (p *Process) Unexpected(when string) error {
	err := p.ExitErr()
	if err == nil {
		err = errors.New("exit status 0")
	}
	last := "it wrote nothing"
	if lines := p.Tail(30); len(lines) > 0 {
		last = "its last lines:\n  " + strings.Join(lines, "\n  ")
	}
	return fmt.Errorf("%s on %s ended %s: %w; %s", p.command.Name, p.machine, when, err, last)
}

// Tail returns the last n lines that the process wrote.
func (p *Process) Tail(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.tail[max(0, len(p.tail)-n):]...)
}

// Signal sends a signal to the process and its children. A process that has ended is not an error.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if s == p.stopSignal() || s == syscall.SIGTERM || s == syscall.SIGKILL || s == syscall.SIGINT ||
		s == syscall.SIGQUIT {
		p.mu.Lock()
		p.told = true
		p.mu.Unlock()
	}
	if err := syscall.Kill(-p.Pid(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s on %s: %w", s, p.command.Name, p.machine, err)
	}
	return nil
}

// Kill ends the process and its children at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill(ctx context.Context) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return p.wait(ctx, "SIGKILL")
}

func (p *Process) stopSignal() syscall.Signal { return cmp.Or(p.command.StopSignal, syscall.SIGTERM) }

// Terminate asks the process to end (Command.StopSignal) and waits at most grace for it. It resumes a paused
// process, as systemd does, because a paused process cannot end.
func (p *Process) Terminate(ctx context.Context, grace time.Duration) error {
	stop := p.stopSignal()
	if err := errors.Join(p.Signal(stop), p.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return p.wait(ctx, unix.SignalName(stop))
}

// Pause stops the process and its children (SIGSTOP). They go on when Resume has been called as often as
// Pause.
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused++
	return p.Signal(syscall.SIGSTOP)
}

// Resume undoes one Pause. The process and its children go on (SIGCONT) when no Pause is left.
func (p *Process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = max(0, p.paused-1)
	if p.paused > 0 {
		return nil
	}
	return p.Signal(syscall.SIGCONT)
}

func (p *Process) wait(ctx context.Context, after string) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s on %s is still there after %s: %w; its last lines:\n%s", p.command.Name, p.machine,
			after, ctx.Err(), strings.Join(p.Tail(10), "\n"))
	}
}
