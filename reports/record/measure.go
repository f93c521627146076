package record

// Probe is what a mesh has measured since it began. It is written when its cluster is torn down.
type Probe struct {
	Pairs   []Pair      `json:"pairs"`
	Errors  []ICMPError `json:"errors,omitempty"`
	Skipped uint64      `json:"skipped"`
}

// Pair is what became of the echoes of one pair in all.
type Pair struct {
	From string `json:"from"`
	To   string `json:"to"`
	// FromNode and ToNode are the nodes on which the two ends are, IPv6 says that the echoes are ICMPv6.
	// Records of before this was recorded lack the three.
	FromNode string `json:"from_node,omitempty"`
	ToNode   string `json:"to_node,omitempty"`
	IPv6     bool   `json:"ipv6,omitempty"`

	Sent    uint64   `json:"sent"`
	Lost    uint64   `json:"lost"`
	RTTMin  int64    `json:"rtt_min"`
	RTTMean int64    `json:"rtt_mean"`
	RTTMax  int64    `json:"rtt_max"`
	Outages []Outage `json:"outages,omitempty"`
}

// Outage is a run of lost echoes, exact to the interval between two echoes. Start is when the first lost one
// was sent; Length runs to the sending of the first answered one after it.
type Outage struct {
	Start  int64  `json:"start"`
	Length int64  `json:"length"`
	Lost   uint64 `json:"lost"`
	Ended  bool   `json:"ended"`
}

// Series is what became of the echoes of a pair over time. A pair has many lines, each with the buckets that
// were complete by then; Start is when the first echo of the line was sent.
type Series struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Start   int64    `json:"start"`
	Buckets []Bucket `json:"buckets"`
}

// Bucket sums up the echoes that were sent in a short time, as seven numbers: when it begins after the start
// of its line and how long it is, both in milliseconds; how many echoes were sent in it and how many of them
// were lost; the least, the mean and the greatest round trip time of the others, in microseconds. Buckets
// are a tenth of a second long while something changes, and up to a second while nothing does.
type Bucket [7]int64

// What stands where in a Bucket.
const (
	BucketBegin = iota
	BucketLength
	BucketSent
	BucketLost
	BucketMin
	BucketMean
	BucketMax
)

// ICMPError is an error message that reached an endpoint of a mesh.
type ICMPError struct {
	// At is the endpoint that got it, Reporter the address that sent it.
	At       string `json:"at"`
	Reporter string `json:"reporter"`
	// Type and Code are those of RFC 792; Source and Destination those of the packet that was not delivered.
	Type        int    `json:"type"`
	Code        int    `json:"code"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Count       uint64 `json:"count"`
	// First and Last are when the first and the last of them arrived.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
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

// Moments at which the state of a cluster is recorded.
const (
	Before = "before" // nothing has been broken yet
	During = "during" // just before something is healed
	After  = "after"  // a scenario has ended
	AtFail = "failed" // a scenario has failed; its cluster is as it was
)

// State is what one machine or etcd holds, in the words of the tools that list it.
type State struct {
	Where string   `json:"where"` // the machine
	What  string   `json:"what"`  // links, addresses, routes, neighbours, fdb, rules, leases
	Lines []string `json:"lines"`
}
