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
	KindPlan      Kind = "plan"      // how many scenarios the run has
	KindBegin     Kind = "begin"     // a scenario began
	KindCatalogue Kind = "catalogue" // the faults that scenarios can inject
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

	Run       *Run        `json:"run,omitempty"`
	Plan      *Plan       `json:"plan,omitempty"`
	Catalogue []FaultKind `json:"catalogue,omitempty"`
	World     *World      `json:"world,omitempty"`
	Pod       *Pod        `json:"pod,omitempty"`
	Step      string      `json:"step,omitempty"`
	Fault     *Fault      `json:"fault,omitempty"`
	Process   *Process    `json:"process,omitempty"`
	Lease     *Lease      `json:"lease,omitempty"`
	Log       *Log        `json:"log,omitempty"`
	Series    []Series    `json:"series,omitempty"`
	Probe     *Probe      `json:"probe,omitempty"`
	Reach     []Reach     `json:"reach,omitempty"`
	When      string      `json:"when,omitempty"` // with Reach and State: see Before and the others
	State     []State     `json:"state,omitempty"`
	Trace     *Trace      `json:"trace,omitempty"`
	Invariant *Invariant  `json:"invariant,omitempty"`
	Figure    *Figure     `json:"figure,omitempty"`
	Verdict   *Verdict    `json:"verdict,omitempty"`
	End       *End        `json:"end,omitempty"`
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
	// Defect is the historic defect that the overlay under test was given (NEMESH_DEFECT), "" for none.
	Defect string `json:"defect,omitempty"`
	// Agent is the overlay under test and AgentVersion what its binary says.
	Agent        string `json:"agent,omitempty"`
	AgentVersion string `json:"agent_version,omitempty"`
}

// Plan says what a run is going to do. It is written once, before the first scenario begins.
type Plan struct {
	// Scenarios is how many scenarios the filters have chosen, in all processes together.
	Scenarios int `json:"scenarios"`
}

// FaultKind is a kind of fault that scenarios can inject: a row of the table of faults. Records of before
// this was recorded have none.
type FaultKind struct {
	// ID is its stable name, such as "etcd-stop", and About says in one line what it does.
	ID    string `json:"id"`
	About string `json:"about"`
	// Component is what it breaks, such as "etcd" or "kernel". Promise is what the overlay says should be felt.
	Component string `json:"component"`
	Promise   string `json:"promise"`
}

// World describes a cluster. Its line is written when it stands, so lines about its pods may come before.
type World struct {
	// Nodes leads from the names of all machines to their addresses; Machines has the same with their roles.
	// Records of before this was recorded lack Machines: Cluster.Machines has those of either.
	Nodes    map[string]string `json:"nodes"`
	Machines []Machine         `json:"machines,omitempty"`
	Network  string            `json:"network"`
	// Agent is what the overlay under test is called. Driver is the same without its defects, which Defects
	// lists: historic failures that it was built with.
	Agent   string   `json:"agent"`
	Driver  string   `json:"driver,omitempty"`
	Defects []string `json:"defects,omitempty"`
	// Device is the name of the overlay's device on each node, Underlay the network between the machines.
	Device   string `json:"device,omitempty"`
	Underlay string `json:"underlay,omitempty"`
	// Interval is the time between two echoes of a pair and LeaseTTL how long a subnet lease lives.
	Interval int64 `json:"interval,omitempty"`
	LeaseTTL int64 `json:"lease_ttl,omitempty"`
	// BuiltIn is how long building took.
	BuiltIn int64 `json:"built_in"`
}

// RoleNode is the role of a machine that has an agent and pods. Others are members of the control plane,
// whose role is its name, such as RoleEtcd.
const (
	RoleNode = "node"
	RoleEtcd = "etcd"
)

// Machine is a machine of a world.
type Machine struct {
	Name string `json:"name"`
	Addr string `json:"addr"`
	Role string `json:"role"`
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
	// N is the number of the injection in its cluster, from 1: all phases of one injection have the same.
	// Records of before this was recorded lack it and what follows.
	N int `json:"n,omitempty"`
	// ID is that of its kind, Component what it breaks and Promise what the overlay says should be felt. A
	// fault that is in no catalogue has no promise, and FaultCustom or an id of its own.
	ID        string `json:"id,omitempty"`
	Component string `json:"component,omitempty"`
	Promise   string `json:"promise,omitempty"`
	// Nodes are the machines at which it is injected, by name; none where that is the control plane as a whole.
	// Params are what else it was given, such as "share" or "address".
	Nodes  []string          `json:"nodes,omitempty"`
	Params map[string]string `json:"params,omitempty"`
}

// FaultCustom is the id of a fault that only one scenario has.
const FaultCustom = "custom"

// FaultLabel begins the label of a scenario that names, by its id, a fault that it is about.
const FaultLabel = "fault:"

// Injection is one injection of a fault, as a verdict knows it.
type Injection struct {
	// Cluster and N are those of the events of the injection (Event.Cluster, Fault.N).
	Cluster string `json:"cluster,omitempty"`
	N       int    `json:"n,omitempty"`
	// Name, ID and Component are those of the fault.
	Name      string `json:"name"`
	ID        string `json:"id,omitempty"`
	Component string `json:"component,omitempty"`
	// Active says that it was not healed when the scenario ended.
	Active bool `json:"active,omitempty"`
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
	// Broke names the faults that were injected, in order. Injections has the same for programs; records of
	// before this was recorded lack it: Injected has what either says.
	Broke      []string    `json:"broke,omitempty"`
	Injections []Injection `json:"injections,omitempty"`
	// Message says what was expected, for a scenario that did not pass; Location is its file and line.
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"`
	// Interrupted says that it was ended from outside, by Ctrl-C or because the run's time was up.
	Interrupted bool `json:"interrupted,omitempty"`
	// Active names the faults that were not healed when it ended.
	Active []string `json:"active,omitempty"`
	// Sent, Lost and LongestOutage sum up the mesh from the end of the scenario before in the same cluster, or
	// from the cluster's beginning. Healed says that something was healed in that time; Recovery is then the
	// time from the last heal to the last loss, -1 if something still did not answer.
	Sent          uint64 `json:"sent"`
	Lost          uint64 `json:"lost"`
	LongestOutage int64  `json:"longest_outage"`
	Recovery      int64  `json:"recovery"`
	Healed        bool   `json:"healed"`
	Duration      int64  `json:"duration"`
	// Kept is the part of Duration in which the scenario's world was kept after it failed (nemesh run --keep).
	Kept   int64    `json:"kept,omitempty"`
	Labels []string `json:"labels,omitempty"`
	// Reported is what the report said that the scenario comes from, in the words of its file.
	Reported string `json:"reported,omitempty"`
}

// Took returns how long the scenario itself took, without the time in which its world was kept.
func (v *Verdict) Took() time.Duration { return time.Duration(v.Duration - v.Kept) }

// End closes a record.
type End struct {
	// Exit is the exit code of the run and Duration its length.
	Exit     int   `json:"exit"`
	Duration int64 `json:"duration"`
}
