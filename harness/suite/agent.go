package suite

import (
	"os"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/sandbox"
)

// What a driver of your own is written in.
type (
	// Driver says how an overlay under test is started, found ready and used. Its value is for Options.Agent,
	// or for RegisterDriver.
	Driver = driver.Driver
	// Spec is what an agent needs to know about its node and its cluster.
	Spec = driver.Spec
	// Peer is another node, for agents that are told of them.
	Peer = driver.Peer
	// Readiness is how an agent says that it is ready.
	Readiness = driver.Readiness
	// AgentWorld is what a driver may ask of a world.
	AgentWorld = driver.World
)

// The abilities that a driver may have beyond Driver, each an interface of one method. What a driver has no
// ability for, its agent lacks: what needs it is skipped, or waived, with a line that says so.
type (
	// Limited names features that the agent lacks.
	Limited = driver.Limited
	// Signaller says how the agent says that it is ready.
	Signaller = driver.Signaller
	// Prober looks itself whether the agent is ready.
	Prober = driver.Prober
	// SubnetReader reads the subnet of a node's pods.
	SubnetReader = driver.SubnetReader
	// LeaseReader lists which node has which subnet.
	LeaseReader = driver.LeaseReader
	// Networked says with which CNI configuration pods are made on one node.
	Networked = driver.Networked
	// KeyKeeper keeps flannel's keys in etcd.
	KeyKeeper = driver.KeyKeeper
	// Versioned can be asked for its version.
	Versioned = driver.Versioned
	// Supervisable says whether the agent is started again when it ends by itself.
	Supervisable = driver.Supervisable
	// Waiving names invariants that the agent was never made to keep.
	Waiving = driver.Waiving
	// Historic is known to have a historic defect for real.
	Historic = driver.Historic
)

// How an agent says that it is ready, for Signaller.
const (
	// ReadyEither takes what comes first of the two others.
	ReadyEither = driver.ReadyEither
	// ReadyNotify waits for READY=1 on the socket in NOTIFY_SOCKET (sd_notify(3)).
	ReadyNotify = driver.ReadyNotify
	// ReadySubnetFile waits until the subnet file has been written since the agent was started.
	ReadySubnetFile = driver.ReadySubnetFile
)

// The drivers that are there already.
type (
	// Ours drives the overlay of this project.
	Ours = driver.Ours
	// Flannel drives flannel's own agent.
	Flannel = driver.Flannel
)

// RegisterDriver makes a driver known by a name, by which --agent and NEMESH_AGENT choose it. It is for init
// functions and variables: a name that is taken, or could be a file's, is a mistake in the program and
// panics.
func RegisterDriver(name string, d Driver) { driver.Register(name, d) }

// Part makes a function a program of its own, which the compiled suite starts on a machine by starting
// itself again: a small agent needs no binary. It is for variables of the suite. The function's arguments
// are os.Args[1:], and what it returns is the exit code. A name that is taken panics.
func Part(name string, run func() int) Command {
	sandbox.RegisterPart(name, run)
	self := sandbox.PartCommand(name)
	return Command{Name: name, Path: self.Path, Argv0: name}
}

// PluginDir is the folder with the CNI plugins that nemesh brings: bridge, host-local and overlay-cni.
func PluginDir() string { return os.Getenv(build.Env) }
