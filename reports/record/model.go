package record

import (
	"slices"
	"time"
)

// Outcome is a run put together from its events: what renderers work on.
type Outcome struct {
	// Run and End are nil when the record lacks its first or last line.
	Run *Run
	End *End
	// Scenarios are in the order in which they ended; those that did not end come last.
	Scenarios []*Scenario
	// Cut says that the record ends in the middle of a line.
	Cut bool
}

// Scenario is one scenario of a run.
type Scenario struct {
	Name string
	// Verdict is nil when the scenario did not end.
	Verdict *Verdict
	Worlds  []World
	Steps   []string
	Faults  []Fault
	Figures []Figure
	// Reach is the last comparison of expected and actual reachability, State the last state that was recorded.
	Reach []Reach
	State []State
	Probe *Probe
	// Invariants are those that were checked, in order, of every cluster.
	Invariants []Invariant
	// Logs are the last lines of each process.
	Logs []Log
}

// maxLogs is how many lines of output a scenario keeps for its renderers.
const maxLogs = 200

// Add takes over one event. It returns the scenario if the event was its verdict.
func (o *Outcome) Add(e Event) (ended *Scenario) {
	switch e.Kind {
	case KindRun:
		o.Run = e.Run
	case KindEnd:
		o.End = e.End
	}
	if e.Scenario == "" {
		return nil
	}
	s := o.scenario(e.Scenario)
	switch e.Kind {
	case KindWorld:
		s.Worlds = append(s.Worlds, *e.World)
	case KindStep:
		s.Steps = append(s.Steps, e.Step)
	case KindFault:
		s.Faults = append(s.Faults, *e.Fault)
	case KindFigure:
		s.Figures = append(s.Figures, *e.Figure)
	case KindInvariant:
		s.Invariants = append(s.Invariants, *e.Invariant)
	case KindReach:
		s.Reach = e.Reach
	case KindState:
		s.State = e.State
	case KindProbe:
		s.Probe = e.Probe
	case KindLog:
		s.Logs = append(s.Logs, *e.Log)
		if len(s.Logs) > maxLogs {
			s.Logs = slices.Delete(s.Logs, 0, len(s.Logs)-maxLogs)
		}
	case KindVerdict:
		s.Verdict = e.Verdict
		o.moveUp(s)
		return s
	}
	return nil
}

func (o *Outcome) scenario(name string) *Scenario {
	for _, s := range o.Scenarios {
		if s.Name == name {
			return s
		}
	}
	s := &Scenario{Name: name}
	o.Scenarios = append(o.Scenarios, s)
	return s
}

// moveUp puts a scenario that has just ended behind those that ended before.
func (o *Outcome) moveUp(s *Scenario) {
	at := slices.Index(o.Scenarios, s)
	o.Scenarios = slices.Delete(o.Scenarios, at, at+1)
	to := 0
	for to < len(o.Scenarios) && o.Scenarios[to].Verdict != nil {
		to++
	}
	o.Scenarios = slices.Insert(o.Scenarios, to, s)
}

// Count returns how many scenarios ended in a state.
func (o *Outcome) Count(state string) int {
	n := 0
	for _, s := range o.Scenarios {
		if s.Verdict != nil && s.Verdict.State == state {
			n++
		}
	}
	return n
}

// Unfinished returns how many scenarios began and have no verdict.
func (o *Outcome) Unfinished() int {
	n := 0
	for _, s := range o.Scenarios {
		if s.Verdict == nil {
			n++
		}
	}
	return n
}

// Exit returns the exit code that the verdicts ask for: 1 if a scenario failed, 2 if one was not proven, did
// not end, or none passed; else 0.
func (o *Outcome) Exit() int {
	switch {
	case o.Count(Failed) > 0:
		return 1
	case o.Count(Unproven) > 0 || o.Unfinished() > 0 || o.Count(Passed) == 0:
		return 2
	default:
		return 0
	}
}

// Duration returns how long the run took; 0 if it did not end.
func (o *Outcome) Duration() time.Duration {
	if o.End == nil {
		return 0
	}
	return time.Duration(o.End.Duration)
}
