// Package defect names historic bugs. A separate build of the overlay (tag `defects`) can have them again,
// so that a scenario can show that it notices them. The normal build has none: it refuses every name.
package defect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Name is the name of a defect on the command line.
type Name string

// The defects of the agent, and at the end those of the CNI plugin. About says what each does.
const (
	OnDemandNeighbours   Name = "on-demand-neighbours"
	ForgetSubnet         Name = "forget-subnet"
	RenewUnconditionally Name = "renew-unconditionally"
	RenewalGivesUp       Name = "renewal-gives-up"
	ExitOnRevoked        Name = "exit-on-revoked"
	DieOnLostRace        Name = "die-on-lost-race"
	NoOwnerRecords       Name = "no-owner-records"
	ReservationTaken     Name = "reservation-taken"
	WatchNotRelisted     Name = "watch-not-relisted"
	RewindUnnoticed      Name = "rewind-unnoticed"
	RewindForgetsPeers   Name = "rewind-forgets-peers"
	GarbageIsEmpty       Name = "garbage-is-empty"
	FirstEndpointOnly    Name = "first-endpoint-only"
	BusyWithoutEtcd      Name = "busy-without-etcd"
	NoSavedState         Name = "no-saved-state"
	NewDeviceAtStart     Name = "new-device-at-start"
	NoCleanUpAtStart     Name = "no-clean-up-at-start"
	PanicAtExit          Name = "panic-at-exit"
	UplinkOnce           Name = "uplink-once"
	ForeignAddressFatal  Name = "foreign-address-fatal"
	KeepMTU              Name = "keep-mtu"
	Deaf                 Name = "deaf"
	RulesOnce            Name = "rules-once"
	RulesAppended        Name = "rules-appended"
	RulesOfOtherSubnet   Name = "rules-of-other-subnet"
	NoForwardRules       Name = "no-forward-rules"
	BothFamiliesOrNone   Name = "both-families-or-none"
	AddressNotKept       Name = "address-not-kept"
	CertificatesOnce     Name = "certificates-once"
	ExitWithoutEtcd      Name = "exit-without-etcd"
	ExitWhenExhausted    Name = "exit-when-exhausted"
	PeersNeverDropped    Name = "peers-never-dropped"
	HangupEnds           Name = "hangup-ends"

	CacheBeforeDEL Name = "cache-before-del"
	NoUndo         Name = "no-undo"
	GCNothing      Name = "gc-nothing"
	GuessSubnet    Name = "guess-subnet"
	DELNeedsSubnet Name = "del-needs-subnet"
	DumpsOnce      Name = "dumps-once"
)

// about says what each defect does, and where it was reported.
var about = map[Name]string{
	OnDemandNeighbours: "pod addresses are resolved when a packet appears, with entries that age " +
		"(flannel#636, before v0.9)",
	ForgetSubnet: "after its lease has expired the node takes another subnet and cni0 keeps the old gateway " +
		"(flannel#520, terraform-kubernetes-installer#5)",
	RenewUnconditionally: "a renewal writes the key whoever holds it now, and a loss is not noticed " +
		"(flannel#1343)",
	RenewalGivesUp: "a renewal that failed once is never tried again (flannel#1240)",
	ExitOnRevoked:  "the agent ends when its lease is gone (flannel#610)",
	DieOnLostRace:  "the agent ends when another takes the chosen subnet first (flannel#1531)",
	NoOwnerRecords: "owners are not remembered: an expired peer is dropped, another node with this node's " +
		"public address is let in (flannel#51)",
	ReservationTaken:   "a reservation gets a TTL when its node starts (flannel#1329)",
	WatchNotRelisted:   "after a compaction or a lost connection nothing new is heard (flannel#2470)",
	RewindUnnoticed:    "an etcd that was emptied or restored is not noticed (flannel#610)",
	RewindForgetsPeers: "what an emptied etcd has forgotten is torn down (flannel#1474)",
	GarbageIsEmpty:     "a key that is no lease makes the whole list count as empty (flannel PR#1368)",
	FirstEndpointOnly:  "only the first endpoint of the list is used (flannel#1633)",
	BusyWithoutEtcd:    "without etcd the agent spins and floods its log (flannel#1830)",
	NoSavedState:       "without etcd the agent does not start (flannel#1474)",
	NewDeviceAtStart:   "the device is made anew at each start, with another MAC (flannel#1002, before v0.8)",
	NoCleanUpAtStart:   "what no lease explains stays in the kernel (flannel#2554)",
	PanicAtExit:        "SIGTERM while etcd is away ends in a panic (flannel#2135)",
	UplinkOnce:         "the agent ends, with success, when the uplink is not there at start (flannel#418)",
	ForeignAddressFatal: "the agent ends when the device has an address of somebody else's " +
		"(flannel#1060)",
	KeepMTU:            "an existing device keeps its MTU (flannel#1011)",
	Deaf:               "the kernel's events are not listened to, and nothing is repaired (flannel#869, #1795)",
	RulesOnce:          "rules are written at start only (flannel#1834)",
	RulesAppended:      "each start appends the rules once more (flannel#1146)",
	RulesOfOtherSubnet: "the rules are those of another subnet, so pods are masqueraded (flannel#1337)",
	NoForwardRules:     "forwarding is not let through (flannel#799)",
	BothFamiliesOrNone: "a peer without IPv6 is no peer at all (flannel#2300)",
	AddressNotKept:     "an address that the uplink loses is taken off the device and out of the lease at once",
	CertificatesOnce:   "certificates are read at start only (flannel#829)",
	ExitWithoutEtcd:    "the agent ends when etcd is not there at start (flannel#390)",
	ExitWhenExhausted:  "the agent ends when no subnet is free",
	PeersNeverDropped:  "a peer whose lease has ended stays in the kernel (flannel#996)",
	HangupEnds:         "SIGHUP ends the agent, as it does flannel's",
	DELNeedsSubnet:     "a DEL fails without subnet.env (flannel#2253)",
	DumpsOnce:          "a list that the kernel changed meanwhile is not read again (plugins#1121)",
	CacheBeforeDEL:     "a DEL forgets the container before the delegate has succeeded (flannel#1662)",
	NoUndo:             "an ADD that fails half-way leaves what it made (plugins#29)",
	GCNothing:          "GC does nothing (plugins#252)",
	GuessSubnet:        "an ADD before there is a subnet makes one up (flannel#2437)",
}

// About says what the defect does, and where it was reported.
func (n Name) About() string { return about[n] }

// Set is the defects of one process.
type Set map[Name]bool

// Has reports whether the process has the defect.
func (s Set) Has(n Name) bool { return s[n] }

// Parse reads names from a command line or a configuration. An unknown name is an error that lists the known
// ones. In the normal build every name is unknown.
func Parse(names []string) (Set, error) {
	set := Set{}
	for _, raw := range names {
		name := Name(raw)
		if !slices.Contains(Built(), name) {
			return nil, unknown(raw)
		}
		set[name] = true
	}
	return set, nil
}

// Built lists the defects of this build. The normal build has none.
func Built() []Name {
	if !built {
		return nil
	}
	return slices.Sorted(maps.Keys(about))
}

func unknown(name string) error {
	if !built {
		return fmt.Errorf(
			"defect %q: this is the normal build, which has no defects; build with -tags defects",
			name,
		)
	}
	var known []string
	for _, n := range Built() {
		known = append(known, string(n))
	}
	return fmt.Errorf("defect %q is not known; there are: %s", name, strings.Join(known, ", "))
}
