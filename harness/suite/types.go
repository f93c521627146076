package suite

import (
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/probe"
)

// What a scenario builds and breaks.
type (
	// Options describe a cluster; the zero value of each field stands for its default.
	Options = cluster.Options
	// Expectation is whether one endpoint of the mesh, a pod or a node, should reach a pod.
	Expectation = cluster.Expectation
	// Lease is a subnet lease as the control plane has it.
	Lease = flannelkeys.Lease
	// Node is a machine with its agent.
	Node = cluster.Node
	// Machine is a machine: a network namespace with files and processes of its own.
	Machine = node.Machine
	// Process is a program on a machine, and Command how it is started.
	Process = node.Process
	// Command is how a program is started on a machine.
	Command = node.Command
	// Pod is a pod, made by CNI ADD.
	Pod = pod.Pod
	// Fault is one way to break a world. One of your own has a Name for people, an Identity for programs, and
	// Inject, which registers the heal with Injection.OnHeal, breaks, and proves that it took effect.
	Fault = fault.Fault
	// Identity says what a fault is: its id, the nodes at which it is injected, and its parameters.
	Identity = fault.Identity
	// Injection is one injection of a fault into a world.
	Injection = fault.Injection
	// FaultEntry is a row of the table of faults, for RegisterFault: id, component, parameters and promise.
	FaultEntry = fault.Entry
	// Place is where a FaultEntry makes its fault, and with what parameters.
	Place = fault.Place
	// World is what a fault works on; a Cluster is one.
	World = fault.World
)

// Feature is something that a scenario may ask of an agent beyond carrying packets.
type Feature = driver.Feature

// The features of agents, for Needs and Has.
const (
	// FeatureKeys is flannel's keys in etcd, FeatureLeases leases that can be listed, FeatureSubnet a node's
	// subnet that can be read, FeatureSubnetFile flannel's file with it, FeatureDevice a device of the
	// overlay's.
	FeatureKeys       = driver.FeatureKeys
	FeatureLeases     = driver.FeatureLeases
	FeatureSubnet     = driver.FeatureSubnet
	FeatureSubnetFile = driver.FeatureSubnetFile
	FeatureDevice     = driver.FeatureDevice
	// What flannel and this project's overlay may have beside.
	FeatureLeaseTTL = driver.FeatureLeaseTTL
	FeatureLeave    = driver.FeatureLeave
	FeatureOwners   = driver.FeatureOwners
	FeaturePublicIP = driver.FeaturePublicIP
	FeatureEtcdV3   = driver.FeatureEtcdV3
	FeatureIPv6     = driver.FeatureIPv6
	FeatureState    = driver.FeatureState
)

// What the mesh measures.
type (
	// Report is what the mesh has measured, PairReport what it has of one pair.
	Report = probe.Report
	// PairReport is what the mesh has measured of one pair.
	PairReport = probe.PairReport
	// ICMPError is an error message that came back to an endpoint.
	ICMPError = probe.ICMPError
	// Endpoint is one end of a pair: a pod, or a node itself.
	Endpoint = probe.Endpoint
)

// What kernels hold.
type (
	// Neighbour is an entry of a neighbour or forwarding table.
	Neighbour = observe.Neighbour
	// NeighbourWatch collects the states of neighbour entries, ARPWatch the ARP packets on a link.
	NeighbourWatch = observe.NeighbourWatch
	// ARPWatch collects the ARP packets on a link.
	ARPWatch = observe.ARPWatch
)

// Names and networks of a world.
const (
	// BackendVXLAN and BackendHostGW are how the overlay carries packets (Options.Backend).
	BackendVXLAN  = cluster.BackendVXLAN
	BackendHostGW = cluster.BackendHostGW
	// Uplink is the name of a machine's link to the others, Bridge that of its pods' bridge.
	Uplink = node.Uplink
	Bridge = node.Bridge
)

// Network6 is what the overlay hands out to nodes in a dual-stack world.
var Network6 = cluster.Network6

// Each builds the expectation of every pair of two sets of pods, in both directions.
func Each(a, b []*Pod, want bool) []Expectation { return cluster.Each(a, b, want) }

// Over6 is the name by which the mesh knows the IPv6 address of an endpoint.
func Over6(name string) string { return cluster.Over6(name) }

// ErrNotProven says that a fault was applied and its effect could not be shown; a fault of your own wraps
// it.
var ErrNotProven = fault.ErrNotProven

// The components that a fault may break (FaultEntry.Component). A module of its own may have others.
const (
	ComponentEtcd   = fault.ComponentEtcd
	ComponentAgent  = fault.ComponentAgent
	ComponentNode   = fault.ComponentNode
	ComponentKernel = fault.ComponentKernel
	ComponentDisk   = fault.ComponentDisk
	ComponentCNI    = fault.ComponentCNI
)

// RegisterFault adds a fault of your own to the table, so that lists, labels and reports know what it breaks
// and what the overlay promises of it. Call it from an init function. A row that lacks something, or whose
// id is taken, is a mistake in the program and panics.
func RegisterFault(e FaultEntry) { fault.Register(e) }
