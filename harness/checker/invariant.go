// Package checker says what must hold of an overlay at rest, whatever a scenario has done before: of
// leases, of every node's kernel, of addresses, of agents, and of what a closed world leaves behind.
//
// An invariant is a pure function from a Snapshot to the sentences that say what violates it, so each is
// tested in milliseconds without a kernel. A Checker takes the snapshots of a cluster and judges them.
// Nothing here uses code of the overlay: what is right is written down a second time, on purpose.
package checker

import (
	"fmt"
	"slices"
	"strings"
)

// Invariant is one statement that must hold at rest.
type Invariant struct {
	// ID is its stable name, in kebab-case, by which a scenario waives it.
	ID string
	// Statement says in one line what holds.
	Statement string
	// Check returns what violates it, as sentences; none if it holds.
	Check func(Snapshot) []string
}

// NothingLeft is the id of the one invariant that is judged when the world is closed.
const NothingLeft = "nothing-left"

// All lists every invariant, in the order in which they are reported.
func All() []Invariant {
	return []Invariant{
		{
			"one-lease-per-node",
			"Every public address has at most one lease, and every node whose agent runs has one.",
			oneLease,
		},
		{"leases-do-not-overlap", "No two leases share an address.", noOverlap},
		{
			"kernel-holds-what-is-explained",
			"Routes, permanent neighbours and forwarding entries of every node are " +
				"those that leases and owners' records explain, no more and no fewer.",
			explained,
		},
		{
			"vtep-mac-agrees",
			"A node's device has the MAC that its lease publishes, and so say its peers' neighbours " +
				"and forwarding entries.",
			vtepMAC,
		},
		{
			"subnet-file-equals-lease",
			"The subnet file of every node names the subnet that it is leased.",
			subnetFile,
		},
		{"cni0-equals-subnet", "The bridge of every node has the gateway address of the subnet file.", bridge},
		{"own-subnet-stays-local", "No node sends its own pods' subnet into the tunnel.", ownSubnet},
		{"pod-address-once", "No two pods have the same address.", podAddressOnce},
		{"pod-address-in-lease", "Every pod's address is in its node's lease.", podInLease},
		{"no-veth-without-pod", "Every veth on a node leads to a pod.", noVeth},
		{"no-reservation-without-pod", "Every address that host-local has reserved is a pod's.", noReservation},
		{"no-rule-twice", "No nftables chain has the same rule twice.", noRuleTwice},
		{"agent-alive", "No agent has ended unless it was told to.", alive},
		{"agent-makes-progress", "A peer that joins is learned by every node, and its end too.", progress},
		{"no-panic", "No agent has panicked.", noPanic},
		{"no-data-race", "No race detector has reported a data race in an agent.", noRace},
		{"log-is-bounded", "No agent writes more than a few lines of log a second.", logBounded},
		{
			NothingLeft,
			"A closed world leaves no process, namespace, mount, link or file in the sandbox.",
			nothingLeft,
		},
	}
}

// Find returns the invariant with an id; an unknown one is an error that lists those there are.
func Find(id string) (Invariant, error) {
	all := All()
	if i := slices.IndexFunc(all, func(v Invariant) bool { return v.ID == id }); i >= 0 {
		return all[i], nil
	}
	var ids []string
	for _, v := range all {
		ids = append(ids, v.ID)
	}
	return Invariant{}, fmt.Errorf("there is no invariant %q; there are: %s", id, strings.Join(ids, ", "))
}

// Result is what became of one invariant.
type Result struct {
	ID string
	// OK says that it holds, Waived that the scenario meant to break it, or that it was not judged since an
	// agent lacks what it is about.
	OK, Waived bool
	// Violations are the sentences of Check; Why is the reason of the waiver.
	Violations []string
	Why        string
}

// Failed reports whether the result fails a scenario.
func (r Result) Failed() bool { return !r.OK && !r.Waived }

// Check judges a snapshot by every invariant but the one of closed worlds. waived maps ids to reasons.
func Check(s Snapshot, waived map[string]string) []Result {
	var results []Result
	for _, v := range All() {
		if v.ID == NothingLeft {
			continue
		}
		results = append(results, Judge(v, s, waived))
	}
	return results
}

// Judge judges a snapshot by one invariant.
func Judge(v Invariant, s Snapshot, waived map[string]string) Result {
	if why, ok := s.Unasked[v.ID]; ok {
		return Result{ID: v.ID, Waived: true, Why: why}
	}
	r := Result{ID: v.ID, Violations: v.Check(s)}
	r.OK = len(r.Violations) == 0
	r.Why, r.Waived = waived[v.ID]
	return r
}

// shown is how many violations of one invariant Failures lists.
const shown = 5

// Failures puts the violations that fail a scenario into one text, a line each; "" if there are none. Of
// many of one invariant it shows the first and counts the others.
func Failures(results []Result) string {
	var lines []string
	for _, r := range results {
		if !r.Failed() {
			continue
		}
		for _, v := range r.Violations[:min(shown, len(r.Violations))] {
			lines = append(lines, r.ID+": "+v)
		}
		if more := len(r.Violations) - shown; more > 0 {
			lines = append(lines, fmt.Sprintf("%s: and %d more", r.ID, more))
		}
	}
	return strings.Join(lines, "\n")
}
