// Package record is the record of a run: everything that happened, one JSON object a line, with one clock.
// All that is shown anywhere is rendered from it.
//
// Several processes write to one file. Each line is one write to a file opened for appending, which the
// kernel keeps whole and in order; the clock is CLOCK_MONOTONIC, which all processes of a machine share. A
// record that was cut off (kill -9, full disk) is read up to its last whole line.
//
// Every time in a record, unless its field says otherwise, is in nanoseconds: a moment is a reading of that
// clock, a length the difference of two. Run.Started alone is the time of day, and belongs to the Event.At
// of its line, so that any moment can be told as a time of day. The schema is described field by field here,
// and with an example of each line in reports/README.md.
package record

import "time"

// Version is that of the schema. A reader refuses others: a field that is missing would be shown as zero,
// and zero packets lost is a claim.
const Version = 2

// Kind says what an event is about, and so which of its fields is set.
type Kind string

// Kinds of events.
const (
	KindRun       Kind = "run"       // the first line: what was run, on what
	KindWorld     Kind = "world"     // a cluster was built
	KindPod       Kind = "pod"       // a pod was made or went
	KindStep      Kind = "step"      // a scenario says what it does
	KindFault     Kind = "fault"     // something was broken, proved, or healed
	KindProcess   Kind = "process"   // an agent or etcd started or ended
	KindLease     Kind = "lease"     // a key of the overlay changed in etcd
	KindLog       Kind = "log"       // a line of output of a process on a machine
	KindSeries    Kind = "series"    // what became of the echoes of some pairs, over time
	KindProbe     Kind = "probe"     // what a mesh has measured in all
	KindReach     Kind = "reach"     // expected reachability beside the actual one
	KindState     Kind = "state"     // what kernels and leases hold, as lines
	KindTrace     Kind = "trace"     // a packet that was followed hop by hop
	KindInvariant Kind = "invariant" // what must hold at rest, and whether it does
	KindFigure    Kind = "figure"    // a measured number
	KindVerdict   Kind = "verdict"   // how a scenario ended
	KindEnd       Kind = "end"       // the last line
)

// Event is one line.
type Event struct {
	// At is when it happened.
	At   int64 `json:"at"`
	Kind Kind  `json:"kind"`
	// Scenario is the one that ran at that moment; empty in lines about the whole run. Cluster is the id of the
	// cluster in which it happened, unique in the record: several scenarios may share one.
	Scenario string `json:"scenario,omitempty"`
	Cluster  string `json:"cluster,omitempty"`

	Run       *Run       `json:"run,omitempty"`
	World     *World     `json:"world,omitempty"`
	Pod       *Pod       `json:"pod,omitempty"`
	Step      string     `json:"step,omitempty"`
	Fault     *Fault     `json:"fault,omitempty"`
	Process   *Process   `json:"process,omitempty"`
	Lease     *Lease     `json:"lease,omitempty"`
	Log       *Log       `json:"log,omitempty"`
	Series    []Series   `json:"series,omitempty"`
	Probe     *Probe     `json:"probe,omitempty"`
	Reach     []Reach    `json:"reach,omitempty"`
	When      string     `json:"when,omitempty"` // with Reach and State: see Before and the others
	State     []State    `json:"state,omitempty"`
	Trace     *Trace     `json:"trace,omitempty"`
	Invariant *Invariant `json:"invariant,omitempty"`
	Figure    *Figure    `json:"figure,omitempty"`
	Verdict   *Verdict   `json:"verdict,omitempty"`
	End       *End       `json:"end,omitempty"`
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
	// Suite is the folder of the scenarios as it was typed, "" for those of nemesh.
	Suite string `json:"suite,omitempty"`
	// Agent is the overlay under test and AgentVersion what its binary says.
	Agent        string `json:"agent,omitempty"`
	AgentVersion string `json:"agent_version,omitempty"`
}

// World describes a cluster. Its line is written when it stands, so lines about its pods may come before.
type World struct {
	Nodes   map[string]string `json:"nodes"` // name to address, etcd's machine among them
	Network string            `json:"network"`
	Agent   string            `json:"agent"`
	// Device is the name of the overlay's device on each node, Underlay the network between the machines.
	Device   string `json:"device,omitempty"`
	Underlay string `json:"underlay,omitempty"`
	// Interval is the time between two echoes of a pair and LeaseTTL how long a subnet lease lives.
	Interval int64 `json:"interval,omitempty"`
	LeaseTTL int64 `json:"lease_ttl,omitempty"`
	// BuiltIn is how long building took.
	BuiltIn int64 `json:"built_in"`
}

// Pod is a pod that was made (CNI ADD) or went.
type Pod struct {
	Name string `json:"name"`
	Node string `json:"node"`
	Addr string `json:"addr"`
	Gone bool   `json:"gone,omitempty"`
}

// Phases of a fault.
const (
	FaultInjecting = "injecting"
	FaultProved    = "proved"
	FaultUnproved  = "not proven"
	FaultHealed    = "healed"
)

// Fault is one step in the life of a fault. Proved says that its effect was seen; one that is proved and
// never healed either lasts to the end (Verdict.Active names it) or is over at once, like a reboot.
type Fault struct {
	Name  string `json:"name"`
	Phase string `json:"phase"`
	Error string `json:"error,omitempty"`
	// Mechanism says how it was brought about, where there is more than one way.
	Mechanism string `json:"mechanism,omitempty"`
}

// Process is the start or the end of an agent or of etcd.
type Process struct {
	Machine string `json:"machine"`
	Name    string `json:"name"`
	Pid     int    `json:"pid"` // as seen in the sandbox
	Exited  bool   `json:"exited,omitempty"`
	// How says how it ended, such as "signal: killed" or "exit status 0".
	How string `json:"how,omitempty"`
}

// Changes of a key.
const (
	LeasePut     = "put"     // written; as before when Value and Was are equal: a renewal
	LeaseDeleted = "deleted" // deleted, or its etcd lease expired
	LeaseFound   = "found"   // there when the harness began to watch, or came to look again
	LeaseMissed  = "missed"  // no longer there when the harness came to look again
	LeaseUnseen  = "unseen"  // the watch has ended, Value says why: changes are not seen until the next "found"
)

// Lease is a change of one of the overlay's keys in etcd (configuration, leases, owners), as the harness
// itself saw it through a watch of its own.
type Lease struct {
	Change string `json:"change"`
	// Key is the part after the overlay's prefix, such as subnets/10.5.3.0-24.
	Key string `json:"key,omitempty"`
	// Value is what it holds now and Was what it held before; both as in etcd.
	Value string `json:"value,omitempty"`
	Was   string `json:"was,omitempty"`
	// ID is the etcd lease it hangs on, 0 for none; Revision is etcd's.
	ID       int64 `json:"id,omitempty"`
	Revision int64 `json:"revision,omitempty"`
}

// Log is one line of output.
type Log struct {
	Machine string `json:"machine"`
	Process string `json:"process"`
	Text    string `json:"text"`
}

// Figure is a measured number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
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
	// Clusters are the ids of the clusters that it used, which may be older than it is.
	Clusters []string `json:"clusters,omitempty"`
	// Broke lists the faults that were injected, in order.
	Broke []string `json:"broke,omitempty"`
	// Message says what was expected, for a scenario that did not pass; Location is its file and line.
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"`
	// Interrupted says that it was ended from outside, by Ctrl-C or because the run's time was up.
	Interrupted bool `json:"interrupted,omitempty"`
	// Active lists the faults that were not healed when it ended.
	Active []string `json:"active,omitempty"`
	// Sent, Lost and LongestOutage sum up the mesh from the end of the scenario before in the same cluster, or
	// from the cluster's beginning. Healed says that something was healed in that time; Recovery is then the
	// time from the last heal to the last loss, -1 if something still did not answer.
	Sent          uint64   `json:"sent"`
	Lost          uint64   `json:"lost"`
	LongestOutage int64    `json:"longest_outage"`
	Recovery      int64    `json:"recovery"`
	Healed        bool     `json:"healed"`
	Duration      int64    `json:"duration"`
	Labels        []string `json:"labels,omitempty"`
	// Reported is what the report said that the scenario comes from, in the words of its file.
	Reported string `json:"reported,omitempty"`
}

// End closes a record.
type End struct {
	// Exit is the exit code of the run and Duration its length.
	Exit     int   `json:"exit"`
	Duration int64 `json:"duration"`
}
