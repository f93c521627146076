package record

// Directions of a followed packet.
const (
	Request = "request"
	Reply   = "reply"
)

// Trace is a packet that was followed from hop to hop, because a pair that should reach each other did not.
// The request comes first, then the reply.
type Trace struct {
	// From sent the echo request to To: pods or nodes, by name.
	From string `json:"from"`
	To   string `json:"to"`
	// Sentence says in one sentence where the packet died and why; Cause is the name of the cause, for those
	// who count. Both are empty when the packet came through.
	Sentence string `json:"sentence"`
	Cause    string `json:"cause"`
	// Details are the lines of kernel state that the sentence rests on.
	Details []string `json:"details,omitempty"`
	Hops    []Hop    `json:"hops"`
}

// Hop is a place that the packet should pass.
type Hop struct {
	// Node is the machine, the pod, or "switch" for the one between the machines. Device is the name of the
	// network device there; a port of the switch is called as the machine behind it.
	Node   string `json:"node"`
	Device string `json:"device"`
	// Direction is Request or Reply.
	Direction string `json:"direction"`
	// Seen tells whether it passed, and At when; 0 if it did not.
	Seen bool  `json:"seen"`
	At   int64 `json:"at,omitempty"`
	// Dead marks where it died. When no hop is marked, it is the first that did not see it.
	Dead bool `json:"dead,omitempty"`
}

// Invariant is something that must hold of leases, kernel state and addresses at rest.
type Invariant struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Details say, a line each, where it does not hold; of a waived one, the reason comes first.
	Details []string `json:"details,omitempty"`
	// Waived says that the scenario expects it not to hold: it does not count against the verdict. One that is
	// waived and holds was waived without need.
	Waived bool `json:"waived,omitempty"`
}
