// Package driver says how an overlay under test is started, found ready and used: the overlay of this
// repository, with or without a defect, or another vendor's.
//
// A driver says the same few things of each: how its agent is started and says that it is ready, where its
// subnet file, keys and device are, the CNI configuration, what it lacks, and its version. Ours and Flannel
// are written here. A user's own is described in a file (ReadFile), which needs no compiler, or written in
// Go and registered (Register).
package driver

import (
	"net/netip"
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
	// Network is what the overlay hands out to nodes and SubnetLen the prefix length of a node's subnet.
	Network   netip.Prefix
	SubnetLen int
	// Peers are the other nodes of the cluster, in order.
	Peers     []Peer
	ExtraArgs []string
}

// Peer is another node, for agents that are told of them.
type Peer struct {
	Name string
	Addr netip.Addr
}

// tls lists the flags for TLS to etcd, which are flannel's.
func (s Spec) tls() []string {
	if s.EtcdCAFile == "" {
		return nil
	}
	return []string{
		"--etcd-cafile=" + s.EtcdCAFile, "--etcd-certfile=" + s.EtcdCertFile,
		"--etcd-keyfile=" + s.EtcdKeyFile,
	}
}

// Driver is one overlay under test. Its values are read only, so one driver serves many nodes. What more a
// driver may say of its agent is in abilities.go; what it does not say, the agent lacks, and what needs it
// is skipped (Lacks).
type Driver interface {
	// Name is what the overlay is called in records and reports.
	Name() string
	// Check says, before a world is built, what keeps the overlay from running, such as a missing binary.
	Check() error
	// Command is how the agent is started on a node, and by which signal it is stopped.
	Command(Spec) node.Command
	// SubnetFile is where the agent leaves its node's subnet for CNI, on the node and as flannel does; "" if it
	// leaves none.
	SubnetFile() string
	// Device is the name of the overlay's device on a node; "" if it has none.
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

// endpoints renders the endpoints of etcd as most agents want them.
func (s Spec) endpoints() string { return strings.Join(s.EtcdEndpoints, ",") }
