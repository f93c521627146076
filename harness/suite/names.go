package suite

import (
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/underlay"
	"github.com/nemesh/nemesh/reports/record"
)

// What verbs return or take beside the types above.
type (
	// Component is what a fault breaks.
	Component = fault.Component
	// Network is a CNI network, for Cluster.AddPodIn.
	Network = pod.Network
	// Lines are what a kernel holds, as lines that read like those of ip and bridge.
	Lines = observe.Lines
	// Line is a line that a program on a machine has written.
	Line = node.Line
	// Etcd is a member of etcd, on a machine of its own.
	Etcd = etcd.Member
	// Control is the control plane of a cluster.
	Control = cluster.Control
	// Switch is what the machines are connected by.
	Switch = underlay.Switch
	// Mesh pings between all pods and nodes that belong to it.
	Mesh = probe.Mesh
	// Pair is two endpoints of the mesh, by name.
	Pair = probe.Pair
	// Reach is what became of an Expectation.
	Reach = record.Reach
	// Summary is what was broken in a cluster and what its pods felt.
	Summary = cluster.Summary
	// Record is where the events of a cluster go.
	Record = record.Writer
)
