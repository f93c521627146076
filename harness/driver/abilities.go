package driver

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
)

// The abilities that a driver may have beyond Driver. Each is an interface of one method, found by type
// assertion.
type (
	// Limited names features that the agent lacks, beside those that its driver cannot say anything of.
	Limited interface{ Lacks() []Feature }
	// Signaller says how the agent says that it is ready. Without it, what comes first is taken (ReadyEither).
	Signaller interface{ Readiness() Readiness }
	// Prober looks itself whether the agent on a machine is ready, in place of a Signaller: nil if it is, else
	// why not. It is called every few milliseconds.
	Prober interface {
		Ready(ctx context.Context, m *node.Machine) error
	}
	// SubnetReader reads the subnet of a node's pods, of an agent that leaves no subnet file.
	SubnetReader interface {
		Subnet(ctx context.Context, m *node.Machine) (netip.Prefix, error)
	}
	// LeaseReader lists which node has which subnet, of an agent that does not keep flannel's keys in etcd.
	LeaseReader interface {
		Leases(ctx context.Context, w World) ([]Lease, error)
	}
	// Networked says with which CNI configuration list pods are made on one node, in place of that of
	// Driver.CNI: of an agent that leaves one on its node, say.
	Networked interface {
		CNIOn(m *node.Machine) (confList []byte, err error)
	}
	// KeyKeeper keeps flannel's keys in etcd, under a prefix; "" for none.
	KeyKeeper interface{ KeyPrefix() string }
	// Versioned can be asked for its version, such as "v0.28.9".
	Versioned interface {
		Version(ctx context.Context) (string, error)
	}
	// Supervisable says whether the agent counts on being started again when it ends by itself, as systemd
	// (Restart=always) and Kubernetes do.
	Supervisable interface{ Supervised() bool }
	// Waiving names invariants that the agent was never made to keep, by id, each with the reason.
	Waiving interface{ Waives() map[string]string }
	// Historic is known to have a historic defect, by its name in fixtures/defects.yaml, for real.
	Historic interface{ HasDefect(name string) bool }
	// Defective was built with historic defects, to show that scenarios notice them. name is what the overlay
	// is called without them.
	Defective interface {
		BuiltWith() (name string, defects []string)
	}
)

// World is what a driver may ask of a world. A cluster is one.
type World interface {
	// Nodes lists the names of the nodes; Machine returns one's machine.
	Nodes() []string
	Machine(name string) (*node.Machine, error)
}

// Lease says which node has a subnet, by its public address.
type Lease = flannelkeys.Lease

func keepsKeys(d Driver) bool {
	k, ok := d.(KeyKeeper)
	return ok && k.KeyPrefix() != ""
}

// PrefixOf returns where a driver's agent keeps its keys in etcd, or would.
func PrefixOf(d Driver) string {
	if k, ok := d.(KeyKeeper); ok && k.KeyPrefix() != "" {
		return k.KeyPrefix()
	}
	return DefaultPrefix
}

// ReadinessOf returns how a driver's agent says that it is ready.
func ReadinessOf(d Driver) Readiness {
	if s, ok := d.(Signaller); ok {
		return s.Readiness()
	}
	if d.SubnetFile() == "" {
		return ReadyNotify
	}
	return ReadyEither
}

// CNIOf returns with what pods are made on a machine.
func CNIOf(d Driver, m *node.Machine) (confList []byte, binDirs []string, err error) {
	confList, binDirs = d.CNI()
	if n, ok := d.(Networked); ok {
		confList, err = n.CNIOn(m)
	}
	return confList, binDirs, err
}

// Supervised reports whether a driver's agent counts on being started again when it ends by itself.
func Supervised(d Driver) bool {
	s, ok := d.(Supervisable)
	return ok && s.Supervised()
}

// Waives returns the ids of invariants that a driver's agent was never made to keep, each with the reason.
func Waives(d Driver) map[string]string {
	if w, ok := d.(Waiving); ok {
		return w.Waives()
	}
	return nil
}

// DefectsOf returns the historic defects with which a driver's agent was built, and what the overlay is
// called without them.
func DefectsOf(d Driver) (name string, defects []string) {
	if b, ok := d.(Defective); ok {
		return b.BuiltWith()
	}
	return d.Name(), nil
}

// HasDefect reports whether a driver's agent is known to have a historic defect for real.
func HasDefect(d Driver, name string) bool {
	h, ok := d.(Historic)
	return ok && h.HasDefect(name)
}

// VersionOf asks a driver's agent for its version.
func VersionOf(ctx context.Context, d Driver) (string, error) {
	if v, ok := d.(Versioned); ok {
		return v.Version(ctx)
	}
	return "", fmt.Errorf("%s cannot be asked for its version", d.Name())
}
