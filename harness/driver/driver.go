// Package driver says how an overlay under test is started, found ready and used: the overlay of this
// repository, with or without a defect, or another vendor's.
//
// A driver says the same few things of each: how its agent is started and says that it is ready, where its
// subnet file, keys and device are, the CNI configuration, what it lacks, and its version. Ours and Flannel
// are written here; a user's own is described in a file (ReadFile) and needs no compiler.
package driver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nemesh/nemesh/harness/node"
)

// Spec is what an agent needs to know about its node and its cluster.
type Spec struct {
	Node          string
	PublicIP      netip.Addr
	Uplink        string
	EtcdEndpoints []string
	EtcdPrefix    string
	LeaseTTL      time.Duration
	Resync        time.Duration
	PeerHold      time.Duration
	VNI           int
	// EtcdCAFile, EtcdCertFile and EtcdKeyFile are set when etcd speaks TLS.
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	ExtraArgs                             []string
}

// tls lists the flags for TLS to etcd, which are flannel's.
func (s Spec) tls() []string {
	if s.EtcdCAFile == "" {
		return nil
	}
	return []string{"--etcd-cafile=" + s.EtcdCAFile, "--etcd-certfile=" + s.EtcdCertFile,
		"--etcd-keyfile=" + s.EtcdKeyFile}
}

// Driver is one overlay under test. Its values are read only, so one driver serves many nodes.
type Driver interface {
	// Name is what the overlay is called in records and reports.
	Name() string
	// Check says, before a world is built, what keeps the overlay from running, such as a missing binary.
	Check() error
	// Command is how the agent is started on a node.
	Command(Spec) node.Command
	// SubnetFile is where the agent leaves its node's subnet, on the node.
	SubnetFile() string
	// Device is the name of the overlay's device on a node.
	Device(vni int) string
	// CNI is the configuration list with which pods are made, and where its plugins are.
	CNI() (confList []byte, binDirs []string)
}

// DefaultPrefix is where flannel and our overlay keep their keys in etcd, unless told otherwise.
const DefaultPrefix = "/coreos.com/network"

// Readiness is how an agent says that it is ready.
type Readiness string

const (
	// ReadyEither takes what comes first; it is for a driver that does not say.
	ReadyEither Readiness = ""
	// ReadyNotify waits for READY=1 on the socket in NOTIFY_SOCKET (sd_notify(3)).
	ReadyNotify Readiness = "notify"
	// ReadySubnetFile waits until the subnet file has been written since the agent was started.
	ReadySubnetFile Readiness = "subnet-file"
)

// Feature is something that a scenario may ask of an agent beyond carrying packets. Only what is asked for
// by a flag or a file counts: a promise that an agent does not keep is a failure, not a lacking feature.
type Feature string

const (
	// FeatureLeaseTTL is a lease whose time to live can be chosen. Without it, leases are revoked from outside.
	FeatureLeaseTTL Feature = "lease-ttl"
	// FeatureLeave is a call of the agent's program that gives the node's lease back (overlayd --leave).
	FeatureLeave Feature = "leave"
	// FeatureOwners is a record of who had a subnet that outlives the lease (<prefix>/owners).
	FeatureOwners Feature = "owners"
	// FeaturePublicIP is the flag --public-ip.
	FeaturePublicIP Feature = "public-ip"
	// FeatureEtcdV3 is keys in etcd's v3 API. An agent without it needs an etcd that still has the v2 API.
	FeatureEtcdV3 Feature = "etcd-v3"
	// FeatureIPv6 is a network of both families (EnableIPv6 in the network configuration).
	FeatureIPv6 Feature = "ipv6"
	// FeatureState is a saved state from which the agent starts without etcd (/var/lib/overlayd/state.json).
	FeatureState Feature = "state"
)

// Features lists every feature, with what it is in words.
func Features() map[Feature]string {
	return map[Feature]string{
		FeatureLeaseTTL: "a lease whose time to live can be chosen",
		FeatureLeave:    "a call that gives the node's lease back",
		FeatureOwners:   "a record of who had a subnet that outlives the lease",
		FeatureEtcdV3:   "keys in etcd's v3 API",
		FeatureIPv6:     "a network of both families",
		FeaturePublicIP: "a flag --public-ip",
		FeatureState:    "a saved state in a file of its own",
	}
}

// The abilities that a driver may have beyond Driver are found by type assertion, through the functions
// below.
type (
	limited   interface{ Lacks() []Feature }
	signaller interface{ Readiness() Readiness }
	versioned interface {
		Version(ctx context.Context) (string, error)
	}
	prefixed   interface{ KeyPrefix() string }
	supervised interface{ Supervised() bool }
	waiving    interface{ Waives() map[string]string }
	historic   interface{ HasDefect(name string) bool }
	defective  interface {
		BuiltWith() (name string, defects []string)
	}
)

// Lacks reports, as an error of one line, the first of the features that a driver's agent does not have.
func Lacks(d Driver, needed ...Feature) error {
	l, ok := d.(limited)
	if !ok {
		return nil
	}
	lacking := l.Lacks()
	for _, f := range needed {
		if slices.Contains(lacking, f) {
			return fmt.Errorf("%s lacks %q: %s", d.Name(), f, Features()[f])
		}
	}
	return nil
}

// ReadinessOf returns how a driver's agent says that it is ready.
func ReadinessOf(d Driver) Readiness {
	if s, ok := d.(signaller); ok {
		return s.Readiness()
	}
	return ReadyEither
}

// PrefixOf returns where a driver's agent keeps its keys in etcd.
func PrefixOf(d Driver) string {
	if p, ok := d.(prefixed); ok && p.KeyPrefix() != "" {
		return p.KeyPrefix()
	}
	return DefaultPrefix
}

// Supervised reports whether a driver's agent counts on being started again when it ends by itself, as
// systemd (Restart=always) and Kubernetes do.
func Supervised(d Driver) bool {
	s, ok := d.(supervised)
	return ok && s.Supervised()
}

// Waives returns the ids of invariants that a driver's agent was never made to keep, each with the reason.
func Waives(d Driver) map[string]string {
	if w, ok := d.(waiving); ok {
		return w.Waives()
	}
	return nil
}

// DefectsOf returns the historic defects with which a driver's agent was built, to show that scenarios notice
// them, and what the overlay is called without them.
func DefectsOf(d Driver) (name string, defects []string) {
	if b, ok := d.(defective); ok {
		return b.BuiltWith()
	}
	return d.Name(), nil
}

// HasDefect reports whether a driver's agent is known to have a historic defect, by its name in
// fixtures/defects.yaml, for real.
func HasDefect(d Driver, name string) bool {
	h, ok := d.(historic)
	return ok && h.HasDefect(name)
}

// VersionOf asks a driver's agent for its version, such as "v0.28.9".
func VersionOf(ctx context.Context, d Driver) (string, error) {
	if v, ok := d.(versioned); ok {
		return v.Version(ctx)
	}
	return "", fmt.Errorf("%s cannot be asked for its version", d.Name())
}

// endpoints renders the endpoints of etcd as most agents want them.
func (s Spec) endpoints() string { return strings.Join(s.EtcdEndpoints, ",") }
