package fault

import (
	"context"
	"fmt"
	"time"
)

// AgentKill ends a node's agent with SIGKILL; the heal starts one.
type AgentKill struct{ Node string }

// Name implements Fault.
func (f AgentKill) Name() string { return "agent on " + f.Node + " killed" }

// Identity implements Fault.
func (f AgentKill) Identity() Identity { return at("agent-kill", f.Node) }

// Inject implements Fault. The proof is that there was a process, and is none.
func (f AgentKill) Inject(ctx context.Context, w *Injection) error {
	agent, err := runningAgent(w, f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(func(ctx context.Context) error { return w.StartAgent(ctx, f.Node) })
	return agent.Kill(ctx)
}

// AgentStop ends a node's agent with SIGTERM; the heal starts one.
type AgentStop struct{ Node string }

// Name implements Fault.
func (f AgentStop) Name() string { return "agent on " + f.Node + " stopped" }

// Identity implements Fault.
func (f AgentStop) Identity() Identity { return at("agent-stop", f.Node) }

// Inject implements Fault. The proof is that the process ran, and ended by itself, with exit code 0, within
// 5 s.
func (f AgentStop) Inject(ctx context.Context, w *Injection) error {
	agent, err := runningAgent(w, f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(func(ctx context.Context) error { return w.StartAgent(ctx, f.Node) })
	if err := agent.Terminate(ctx, 5*time.Second); err != nil {
		return err
	}
	if err := agent.ExitErr(); err != nil {
		return fmt.Errorf("agent on %s ended badly after SIGTERM: %w", f.Node, err)
	}
	return nil
}

// AgentPause stops a node's agent as it is (SIGSTOP).
type AgentPause struct{ Node string }

// Name implements Fault.
func (f AgentPause) Name() string { return "agent on " + f.Node + " paused" }

// Identity implements Fault.
func (f AgentPause) Identity() Identity { return at("agent-pause", f.Node) }

// Inject implements Fault. The proof is that all its threads are in state T in /proc.
func (f AgentPause) Inject(ctx context.Context, w *Injection) error {
	agent, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	if !agent.Running() {
		return fmt.Errorf("%w: no agent runs on %s", ErrNotProven, f.Node)
	}
	w.OnHeal(func(context.Context) error { return agent.Resume() })
	if err := agent.Pause(); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "the agent is in state T", func(context.Context) (bool, error) {
		return agent.Stopped()
	})
}

// AgentRestart ends a node's agent with SIGTERM and starts it again, as an upgrade does.
type AgentRestart struct{ Node string }

// Name implements Fault.
func (f AgentRestart) Name() string { return "agent on " + f.Node + " restarted" }

// Identity implements Fault.
func (f AgentRestart) Identity() Identity { return at("agent-restart", f.Node) }

// Inject implements Fault. The proof is that the old process ended and that another runs. The heal starts an
// agent if Inject did not get that far.
func (f AgentRestart) Inject(ctx context.Context, w *Injection) error {
	old, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	if !old.Running() {
		return fmt.Errorf("%w: no agent runs on %s that could be restarted", ErrNotProven, f.Node)
	}
	w.OnHeal(func(ctx context.Context) error { return w.StartAgent(ctx, f.Node) })
	if err := old.Terminate(ctx, 5*time.Second); err != nil {
		return err
	}
	if err := w.StartAgent(ctx, f.Node); err != nil {
		return err
	}
	agent, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	if agent == old || !agent.Running() {
		return fmt.Errorf("%w: no new agent runs on %s", ErrNotProven, f.Node)
	}
	return nil
}
