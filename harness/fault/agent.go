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

// Inject implements Fault. The proof is that the process is gone.
func (f AgentKill) Inject(ctx context.Context, w World) error {
	agent, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(f.Name(), func(ctx context.Context) error { return w.StartAgent(ctx, f.Node) })
	return agent.Kill(ctx)
}

// AgentStop ends a node's agent with SIGTERM; the heal starts one.
type AgentStop struct{ Node string }

// Name implements Fault.
func (f AgentStop) Name() string { return "agent on " + f.Node + " stopped" }

// Inject implements Fault. The proof is that the process ended by itself, with exit code 0, within 5 s.
func (f AgentStop) Inject(ctx context.Context, w World) error {
	agent, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(f.Name(), func(ctx context.Context) error { return w.StartAgent(ctx, f.Node) })
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

// Inject implements Fault. The proof is the process's state T in /proc.
func (f AgentPause) Inject(ctx context.Context, w World) error {
	agent, err := w.Agent(f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(f.Name(), func(context.Context) error { return agent.Resume() })
	if err := agent.Pause(); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "the agent is in state T", func(context.Context) (bool, error) {
		state, err := processState(agent.Pid())
		return state == "T", err
	})
}
