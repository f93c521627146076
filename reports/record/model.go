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
	// Planned is how many scenarios the run has; 0 if the record does not say.
	Planned int
	// Catalogue lists the kinds of faults that there were; none in a record of before this was recorded.
	Catalogue []FaultKind
	// Scenarios are in the order in which they ended; those that did not end come last.
	Scenarios []*Scenario
	// Clusters are in the order in which they were built.
	Clusters []*Cluster
	// Cut says that the record ends in the middle of a line; Damaged are the numbers of other lines that cannot
	// be read.
	Cut     bool
	Damaged []int
	// First and Last are the times of the first and the last event.
	First, Last int64

	clusters map[string]*Cluster
	byName   map[string]*Scenario
	seen     map[string]FaultKind // of faults that were injected, by id
}

// Scenario is one scenario of a run.
type Scenario struct {
	Name string
	// Suite and Defect are the run's (Run.Suite, Run.Defect).
	Suite, Defect string
	// Began is the time of its first event and Ended that of its verdict; 0 if there is none.
	Began, Ended int64
	// Verdict is nil when the scenario did not end.
	Verdict *Verdict
	Worlds  []World
	Steps   []string
	Faults  []Fault
	Figures []Figure
	// Reach is the last comparison of expected and actual reachability, State the last state that was recorded.
	// Asserted is the last comparison that the scenario made itself, not the report of its failure.
	Reach, Asserted []Reach
	State           []State
	Probe           *Probe
	// Traces are the packets that were followed, Invariants what was found of each the last time it was
	// checked.
	Traces     []Trace
	Invariants []Invariant
	// Logs are the last lines of each process.
	Logs []Log
	// Clusters are those it used: the ones its verdict names or, without one, those its events happened in.
	Clusters []*Cluster
}

// maxLogs is how many lines of output a scenario keeps for its renderers.
const maxLogs = 200

// Ended reports whether the record has the last line of its run.
func (o *Outcome) Ended() bool { return o.End != nil && !o.Cut }

// Add takes over one event. It returns the scenario if the event was its verdict.
func (o *Outcome) Add(e Event) (ended *Scenario) {
	if o.First == 0 {
		o.First = e.At
	}
	o.Last = max(o.Last, e.At)
	switch {
	case e.Kind == KindRun && e.Run != nil:
		o.Run = e.Run
	case e.Kind == KindPlan && e.Plan != nil:
		o.Planned = e.Plan.Scenarios
	case e.Kind == KindCatalogue:
		o.catalogue(e.Catalogue)
	case e.Kind == KindEnd && e.End != nil:
		o.End = e.End
	}
	if f := e.Fault; f != nil && f.ID != "" {
		if o.seen == nil {
			o.seen = map[string]FaultKind{}
		}
		o.seen[f.ID] = FaultKind{ID: f.ID, Component: f.Component, Promise: f.Promise}
	}
	c := o.cluster(e.Cluster)
	if c != nil {
		c.add(e)
	}
	if e.Scenario == "" {
		return nil
	}
	s := o.scenario(e.Scenario)
	if s.Began == 0 {
		s.Began = e.At
	}
	s.add(e)
	if c != nil && s.Verdict == nil && !slices.Contains(s.Clusters, c) {
		s.Clusters = append(s.Clusters, c)
	}
	if e.Kind != KindVerdict || e.Verdict == nil {
		return nil
	}
	s.Verdict, s.Ended = e.Verdict, e.At
	if e.Verdict.Clusters != nil {
		s.Clusters = nil
		for _, id := range e.Verdict.Clusters {
			s.Clusters = append(s.Clusters, o.cluster(id))
		}
	}
	for _, c := range s.Clusters {
		if c != nil {
			c.Users = append(c.Users, s)
		}
	}
	o.moveUp(s)
	return s
}

// add takes over an event of the scenario.
func (s *Scenario) add(e Event) {
	switch {
	case e.Kind == KindWorld && e.World != nil:
		s.Worlds = append(s.Worlds, *e.World)
	case e.Kind == KindStep:
		s.Steps = append(s.Steps, e.Step)
	case e.Kind == KindFault && e.Fault != nil:
		s.Faults = append(s.Faults, *e.Fault)
	case e.Kind == KindFigure && e.Figure != nil:
		s.Figures = append(s.Figures, *e.Figure)
	case e.Kind == KindReach:
		s.Reach = e.Reach
		if e.When == "" {
			s.Asserted = e.Reach
		}
	case e.Kind == KindState:
		s.State = e.State
	case e.Kind == KindProbe && e.Probe != nil:
		s.Probe = e.Probe
	case e.Kind == KindTrace && e.Trace != nil:
		s.Traces = append(s.Traces, *e.Trace)
	case e.Kind == KindInvariant && e.Invariant != nil:
		s.Invariants = slices.DeleteFunc(
			s.Invariants,
			func(i Invariant) bool { return i.Name == e.Invariant.Name },
		)
		s.Invariants = append(s.Invariants, *e.Invariant)
	case e.Kind == KindLog && e.Log != nil:
		s.Logs = append(s.Logs, *e.Log)
		if len(s.Logs) > maxLogs {
			s.Logs = slices.Delete(s.Logs, 0, len(s.Logs)-maxLogs)
		}
	}
}

func (o *Outcome) scenario(name string) *Scenario {
	if s, ok := o.byName[name]; ok {
		return s
	}
	s := &Scenario{Name: name}
	if o.Run != nil {
		s.Suite, s.Defect = o.Run.Suite, o.Run.Defect
	}
	if o.byName == nil {
		o.byName = map[string]*Scenario{}
	}
	o.byName[name] = s
	o.Scenarios = append(o.Scenarios, s)
	return s
}

// catalogue takes over the kinds of faults of one suite. Several may have run, and know the same ones.
func (o *Outcome) catalogue(kinds []FaultKind) {
	for _, k := range kinds {
		if _, known := o.FaultKind(k.ID); !known {
			o.Catalogue = append(o.Catalogue, k)
		}
	}
}

// FaultKind returns the kind of fault with an id, if the catalogue has it.
func (o *Outcome) FaultKind(id string) (FaultKind, bool) {
	i := slices.IndexFunc(o.Catalogue, func(k FaultKind) bool { return k.ID == id })
	if i < 0 {
		return FaultKind{}, false
	}
	return o.Catalogue[i], true
}

// KindOf returns the kind of a fault that was injected: that of the catalogue or, for one that is in none,
// what its own events say. It has no ID in a record of before ids were recorded. A fault that only one
// scenario has is a kind of its own, by its name.
func (o *Outcome) KindOf(i Injection) FaultKind {
	switch i.ID {
	case "":
		return FaultKind{About: i.Name}
	case FaultCustom:
		return FaultKind{ID: FaultCustom, About: i.Name, Component: i.Component}
	}
	if k, ok := o.FaultKind(i.ID); ok {
		return k
	}
	k := o.seen[i.ID]
	k.ID, k.About, k.Component = i.ID, i.Name, i.Component
	return k
}

// Injected lists the faults that were injected. In a record of before ids were recorded they have nothing
// but their names.
func (v *Verdict) Injected() []Injection {
	if len(v.Injections) > 0 {
		return v.Injections
	}
	var all []Injection
	for _, name := range v.Broke {
		all = append(all, Injection{Name: name, Active: slices.Contains(v.Active, name)})
	}
	return all
}

// cluster returns the cluster with an id, nil for none.
func (o *Outcome) cluster(id string) *Cluster {
	if id == "" {
		return nil
	}
	if c, ok := o.clusters[id]; ok {
		return c
	}
	c := &Cluster{ID: id}
	if o.clusters == nil {
		o.clusters = map[string]*Cluster{}
	}
	o.clusters[id] = c
	o.Clusters = append(o.Clusters, c)
	return c
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
