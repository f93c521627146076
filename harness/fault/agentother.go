package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
)

// AgentCrashLoop kills a node's agent with SIGKILL, starts it, and kills it again after a while, until it is
// healed.
type AgentCrashLoop struct {
	Node string
	// Every is how long each agent lives.
	Every time.Duration
}

// Name implements Fault.
func (f AgentCrashLoop) Name() string { return "agent on " + f.Node + " in a crash loop" }

// Identity implements Fault.
func (f AgentCrashLoop) Identity() Identity {
	return at("agent-crash-loop", f.Node).with("every", f.Every)
}

// Inject implements Fault. The proof is that two agents have been killed.
func (f AgentCrashLoop) Inject(ctx context.Context, w *Injection) error {
	if _, err := runningAgent(w, f.Node); err != nil {
		return err
	}
	looping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var loop sync.WaitGroup
	killed := make(chan struct{}, 2)
	w.OnHeal(func(ctx context.Context) error {
		stop()
		loop.Wait()
		return w.StartAgent(ctx, f.Node)
	})
	loop.Go(func() {
		tick := time.NewTicker(f.Every)
		defer tick.Stop()
		for {
			if agent, err := w.Agent(f.Node); err == nil && agent.Running() && agent.Kill(looping) == nil {
				select {
				case killed <- struct{}{}:
				default:
				}
			}
			// An agent that is not ready when its time is over is killed all the same.
			starting, enough := context.WithTimeout(looping, f.Every)
			_ = w.StartAgent(starting, f.Node)
			enough()
			select {
			case <-looping.Done():
				return
			case <-tick.C:
			}
		}
	})
	two := 0
	return prove(ctx, proofWithin+4*f.Every, "two agents were killed", func(context.Context) (bool, error) {
		select {
		case <-killed:
			two++
		default:
		}
		return two == 2, nil
	})
}

// AgentReplaced ends a node's agent with SIGTERM and starts another program in its place, with the same
// flags, as an upgrade or a wrong image does; the heal starts the own one again. Without Path it is a copy
// of the own one.
type AgentReplaced struct{ Node, Path string }

// Name implements Fault.
func (f AgentReplaced) Name() string { return "agent on " + f.Node + " replaced by another binary" }

// Identity implements Fault.
func (f AgentReplaced) Identity() Identity { return at("agent-replaced", f.Node).with("path", f.Path) }

// Inject implements Fault. The proof is the program that the new process runs (/proc/PID/exe).
func (f AgentReplaced) Inject(ctx context.Context, w *Injection) error {
	old, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	path := f.Path
	if path == "" {
		path = "/var/lib/another-agent"
	}
	w.OnHeal(func(ctx context.Context) error {
		if agent, err := w.Agent(f.Node); err == nil && agent.Running() && agent.Command().Path == path {
			if err := agent.Terminate(ctx, 5*time.Second); err != nil {
				return err
			}
		}
		if f.Path == "" {
			if err := os.Remove(machine.Path(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return w.StartAgent(ctx, f.Node)
	})
	if f.Path == "" {
		raw, err := os.ReadFile(old.Command().Path)
		if err = errors.Join(err, os.WriteFile(machine.Path(path), raw, 0o755)); err != nil {
			return fmt.Errorf("copy the agent: %w", err)
		}
	}
	if err := old.Terminate(ctx, 5*time.Second); err != nil {
		return err
	}
	err = w.StartAgentAs(ctx, f.Node, func(c node.Command) node.Command {
		c.Path = path
		return c
	})
	if err != nil {
		return err
	}
	now, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", now.Pid()))
	if err != nil || filepath.Base(exe) != filepath.Base(path) {
		return fmt.Errorf("%w: process %d runs %s (%w)", ErrNotProven, now.Pid(), exe, err)
	}
	return nil
}

// AgentFlags ends a node's agent with SIGTERM and starts it with more flags, which win over those before;
// the heal starts it with its own.
type AgentFlags struct {
	Node string
	Args []string
}

// Name implements Fault.
func (f AgentFlags) Name() string {
	return "agent on " + f.Node + " started with " + strings.Join(f.Args, " ")
}

// Identity implements Fault.
func (f AgentFlags) Identity() Identity {
	return at("agent-flags", f.Node).with("flags", strings.Join(f.Args, " "))
}

// Inject implements Fault. The proof is the new process's command line.
func (f AgentFlags) Inject(ctx context.Context, w *Injection) error {
	old, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(func(ctx context.Context) error {
		if agent, err := w.Agent(f.Node); err == nil && agent.Running() && f.in(agent) {
			if err := agent.Terminate(ctx, 5*time.Second); err != nil {
				return err
			}
		}
		return w.StartAgent(ctx, f.Node)
	})
	if err := old.Terminate(ctx, 5*time.Second); err != nil {
		return err
	}
	err = w.StartAgentAs(ctx, f.Node, func(c node.Command) node.Command {
		c.Args = append(slices.Clone(c.Args), f.Args...)
		return c
	})
	if err != nil {
		return err
	}
	now, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	if !f.in(now) {
		return fmt.Errorf("%w: the command line is %q", ErrNotProven, now.Command().Args)
	}
	return nil
}

// in reports whether a process was started with the flags.
func (f AgentFlags) in(p *node.Process) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid()))
	return err == nil && strings.HasSuffix(string(raw), "\x00"+strings.Join(f.Args, "\x00")+"\x00")
}

// AgentStarved leaves a node's agent next to no processor time: it is stopped and let go on in turns. It is
// what can be had without a cgroup of one's own, and harder than nice, which does nothing on an idle
// machine.
type AgentStarved struct{ Node string }

// starvedOf is the length of a turn and starvedRuns the part of it in which the agent runs.
const starvedOf, starvedRuns = 100 * time.Millisecond, 5 * time.Millisecond

// Name implements Fault.
func (f AgentStarved) Name() string { return "agent on " + f.Node + " starved of processor time" }

// Identity implements Fault.
func (f AgentStarved) Identity() Identity { return at("agent-starved", f.Node) }

// Mechanism implements Mechanical.
func (f AgentStarved) Mechanism() string {
	return fmt.Sprintf("SIGSTOP for %s of every %s", starvedOf-starvedRuns, starvedOf)
}

// Inject implements Fault. The proof is that the agent has been seen stopped, and running again, several
// times.
func (f AgentStarved) Inject(ctx context.Context, w *Injection) error {
	agent, err := runningAgent(w, f.Node)
	if err != nil {
		return err
	}
	starving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var loop sync.WaitGroup
	turns := make(chan struct{}, 3)
	w.OnHeal(func(context.Context) error {
		stop()
		loop.Wait()
		return nil
	})
	loop.Go(func() {
		for agent.Running() && starving.Err() == nil {
			err := agent.Pause()
			held := waitFor(starving, starvedOf-starvedRuns)
			isStopped, _ := agent.Stopped()
			err = errors.Join(err, agent.Resume())
			if err == nil && held && isStopped {
				select {
				case turns <- struct{}{}:
				default:
				}
			}
			waitFor(starving, starvedRuns)
		}
	})
	return prove(ctx, proofWithin, "the agent was stopped three times", func(context.Context) (bool, error) {
		return len(turns) == cap(turns), nil
	})
}

// waitFor lets time pass; false when the context ended before.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// AgentOutOfFiles leaves a node's agent no file descriptor: the limit is lowered under those that it has
// (setrlimit(2), RLIMIT_NOFILE), so that what is open stays open and nothing more can be opened.
type AgentOutOfFiles struct{ Node string }

// Name implements Fault.
func (f AgentOutOfFiles) Name() string { return "agent on " + f.Node + " out of file descriptors" }

// Identity implements Fault.
func (f AgentOutOfFiles) Identity() Identity { return at("agent-out-of-files", f.Node) }

// Inject implements Fault. The proof is the limit, as the kernel reports it of the process.
func (f AgentOutOfFiles) Inject(_ context.Context, w *Injection) error {
	agent, err := runningAgent(w, f.Node)
	if err != nil {
		return err
	}
	var before, after unix.Rlimit
	if err := unix.Prlimit(agent.Pid(), unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return fmt.Errorf("read the limits of the agent on %s: %w", f.Node, err)
	}
	w.OnHeal(func(context.Context) error {
		if !agent.Running() {
			return nil // the next one has limits of its own
		}
		err := unix.Prlimit(agent.Pid(), unix.RLIMIT_NOFILE, &before, nil)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("give the agent on %s its limit back: %w", f.Node, err)
		}
		return nil
	})
	none := unix.Rlimit{Cur: 0, Max: before.Max}
	if err := unix.Prlimit(agent.Pid(), unix.RLIMIT_NOFILE, &none, nil); err != nil {
		return fmt.Errorf("limit the agent on %s: %w", f.Node, err)
	}
	err = unix.Prlimit(agent.Pid(), unix.RLIMIT_NOFILE, nil, &after)
	if err != nil || after.Cur != 0 {
		return fmt.Errorf("%w: the agent on %s may have %d open files (%w)", ErrNotProven, f.Node, after.Cur, err)
	}
	return nil
}

// runningAgent returns a node's agent, which must run: what is done to one that does not proves nothing.
func runningAgent(w World, name string) (*node.Process, error) {
	agent, err := w.Agent(name)
	if err == nil && !agent.Running() {
		err = fmt.Errorf("%w: no agent runs on %s", ErrNotProven, name)
	}
	return agent, err
}
