// Package record is the record of a run: everything that happened, one JSON object a line, with one clock.
// All that is shown anywhere is rendered from it.
//
// Several processes write to one file. Each line is one write to a file opened for appending, which the
// kernel keeps whole and in order; the clock is CLOCK_MONOTONIC, which all processes of a machine share. A
// record that was cut off (kill -9, full disk) is read up to its last whole line.
package record

import "time"

// Version is that of the schema. A reader refuses others.
const Version = 1

// Kind says what an event is about, and so which of its fields is set.
type Kind string

// Kinds of events.
const (
	KindRun    Kind = "run"    // the first line: what was run, on what
	KindWorld  Kind = "world"  // a cluster was built
	KindStep   Kind = "step"   // a scenario says what it does
	KindFault  Kind = "fault"  // something was broken, proved, or healed
	KindLog    Kind = "log"    // a line of output of a process on a machine
	KindProbe  Kind = "probe"  // what a mesh has measured
	KindReach  Kind = "reach"  // expected reachability beside the actual one
	KindState  Kind = "state"  // what kernels and leases hold, as lines
	KindTrace  Kind = "trace"  // a packet that was followed
	KindFigure Kind = "figure" // a measured number
	// KindInvariant is what became of an invariant after a scenario's body, or when its world was closed.
	KindInvariant Kind = "invariant"
	KindVerdict   Kind = "verdict" // how a scenario ended
	KindEnd       Kind = "end"     // the last line
)

// Event is one line. At is nanoseconds of CLOCK_MONOTONIC; Scenario is empty in lines about the whole run.
type Event struct {
	At       int64    `json:"at"`
	Kind     Kind     `json:"kind"`
	Scenario string   `json:"scenario,omitempty"`
	Run      *Run     `json:"run,omitempty"`
	World    *World   `json:"world,omitempty"`
	Step     string   `json:"step,omitempty"`
	Fault    *Fault   `json:"fault,omitempty"`
	Log      *Log     `json:"log,omitempty"`
	Probe    *Probe   `json:"probe,omitempty"`
	Reach    []Reach  `json:"reach,omitempty"`
	State    []State  `json:"state,omitempty"`
	Trace    *Trace   `json:"trace,omitempty"`
	Figure   *Figure  `json:"figure,omitempty"`
	Verdict  *Verdict `json:"verdict,omitempty"`
	End      *End     `json:"end,omitempty"`

	Invariant *Invariant `json:"invariant,omitempty"`
}

// Run says what was run.
type Run struct {
	Version int       `json:"version"`
	Started time.Time `json:"started"`
	// Command is what was typed; Go, Kernel and CPUs describe the machine.
	Command []string `json:"command"`
	Go      string   `json:"go"`
	Kernel  string   `json:"kernel"`
	CPUs    int      `json:"cpus"`
	Root    bool     `json:"root"`
	// Module is the version of nemesh, Seed that of the order of scenarios.
	Module string `json:"module"`
	Seed   int64  `json:"seed"`
	// Agent is the overlay under test and AgentVersion what its binary says.
	Agent        string `json:"agent,omitempty"`
	AgentVersion string `json:"agent_version,omitempty"`
}

// World describes a cluster.
type World struct {
	Nodes   map[string]string `json:"nodes"` // name to address
	Network string            `json:"network"`
	Agent   string            `json:"agent"`
	// BuiltIn is how long building took, in nanoseconds.
	BuiltIn int64 `json:"built_in"`
}

// Phases of a fault.
const (
	FaultInjecting = "injecting"
	FaultProved    = "proved"
	FaultUnproved  = "not proven"
	FaultHealed    = "healed"
)

// Fault is one step in the life of a fault.
type Fault struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`
	Error string `json:"error,omitempty"`
	// Mechanism says how it was brought about, where there is more than one way.
	Mechanism string `json:"mechanism,omitempty"`
}

// Log is one line of output.
type Log struct {
	Machine string `json:"machine"`
	Process string `json:"process"`
	Text    string `json:"text"`
}

// Probe is what a mesh has measured since it began.
type Probe struct {
	Pairs   []Pair      `json:"pairs"`
	Errors  []ICMPError `json:"errors,omitempty"`
	Skipped uint64      `json:"skipped"`
}

// Pair is what became of the echoes of one pair.
type Pair struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Sent    uint64   `json:"sent"`
	Lost    uint64   `json:"lost"`
	RTTMin  int64    `json:"rtt_min"`
	RTTMean int64    `json:"rtt_mean"`
	RTTMax  int64    `json:"rtt_max"`
	Outages []Outage `json:"outages,omitempty"`
}

// Outage is a run of lost echoes; Start is on the record's clock, both are nanoseconds.
type Outage struct {
	Start  int64  `json:"start"`
	Length int64  `json:"length"`
	Lost   uint64 `json:"lost"`
	Ended  bool   `json:"ended"`
}

// ICMPError is an error message that reached an endpoint of a mesh.
type ICMPError struct {
	At          string `json:"at"`
	Reporter    string `json:"reporter"`
	Type        int    `json:"type"`
	Code        int    `json:"code"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Count       uint64 `json:"count"`
}

// Reach is the expected and the actual reachability of one pair.
type Reach struct {
	From string `json:"from"`
	To   string `json:"to"`
	Want bool   `json:"want"`
	Got  bool   `json:"got"`
	Sent uint64 `json:"sent"`
	Lost uint64 `json:"lost"`
}

// State is what one machine or etcd holds, in the words of the tools that list it.
type State struct {
	Where string   `json:"where"`
	What  string   `json:"what"`
	Lines []string `json:"lines"`
}

// Trace is a packet that was followed hop by hop.
type Trace struct {
	Scenario string `json:"scenario,omitempty"`
	From     string `json:"from"`
	To       string `json:"to"`
	// Sentence says where and why it died; Cause is the same as a stable word.
	Sentence string `json:"sentence"`
	Cause    string `json:"cause"`
	Hops     []Hop  `json:"hops"`
}

// Hop is one place on a packet's expected way. Direction is "request" or "reply"; At is when it was seen
// there, on the record's clock.
type Hop struct {
	Node      string `json:"node"`
	Device    string `json:"device"`
	Direction string `json:"direction"`
	Seen      bool   `json:"seen"`
	At        int64  `json:"at,omitempty"`
}

// Figure is a measured number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Invariant is what became of one invariant.
type Invariant struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Waived says that the scenario means to break it. One that is waived and holds was waived without need.
	Waived bool `json:"waived,omitempty"`
	// Details are the violations, a sentence each; of a waived one, the reason comes first.
	Details []string `json:"details,omitempty"`
}

// Outcomes of a scenario.
const (
	Passed   = "passed"
	Failed   = "failed"
	Unproven = "not proven"
	Skipped  = "skipped"
)

// Verdict says how a scenario ended.
type Verdict struct {
	State string `json:"state"`
	// Broke lists the faults that were injected, in order.
	Broke []string `json:"broke,omitempty"`
	// Message says what was expected, for a scenario that did not pass; Location is its file and line.
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"`
	// Active lists the faults that were not healed when it failed.
	Active []string `json:"active,omitempty"`
	// Sent, Lost and LongestOutage sum up the mesh; Recovery is the time from the last heal to the last loss,
	// -1 if something still did not answer. Times are nanoseconds.
	Sent          uint64   `json:"sent"`
	Lost          uint64   `json:"lost"`
	LongestOutage int64    `json:"longest_outage"`
	Recovery      int64    `json:"recovery"`
	Healed        bool     `json:"healed"`
	Duration      int64    `json:"duration"`
	Labels        []string `json:"labels,omitempty"`
}

// End closes a record.
type End struct {
	// Exit is the exit code of the run and Duration its length in nanoseconds.
	Exit     int   `json:"exit"`
	Duration int64 `json:"duration"`
}
