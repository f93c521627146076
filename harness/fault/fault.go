// Package fault breaks a world on purpose. A fault is a value; injecting it registers how it is healed
// before anything is done, and proves that it took effect before any assertion starts. A fault that cannot
// be proved makes a scenario not proven, which is never a pass.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/underlay"
	"github.com/nemesh/nemesh/harness/wait"
)

// ErrNotProven says that a fault was applied and its effect could not be shown.
var ErrNotProven = errors.New("the fault is not proven")

// World is what a fault works on. A cluster is one.
type World interface {
	// Etcd is the first member of the control plane, which knows the others, and EtcdPrefix where the overlay
	// keeps its keys.
	Etcd() *etcd.Member
	EtcdPrefix() string
	Switch() *underlay.Switch
	// Machine returns a node's machine. PowerOff switches it off, its pods included.
	Machine(name string) (*node.Machine, error)
	PowerOff(ctx context.Context, name string) error
	// Agent returns a node's agent; StartAgent starts one where none runs, StartAgentAs starts what change
	// makes of its command.
	Agent(name string) (*node.Process, error)
	StartAgent(ctx context.Context, name string) error
	StartAgentAs(ctx context.Context, name string, change func(node.Command) node.Command) error
	// Device is the name of the overlay's device, SubnetFile the file that the agent leaves for CNI, StateDir
	// the folder of what outlives it, "" if there is none.
	Device() string
	SubnetFile() string
	StateDir() string
	// Nodes lists the names of the nodes, PodsOn the pods of one.
	Nodes() []string
	PodsOn(node string) []*pod.Pod
	// AddPod makes a pod by CNI ADD, DelPod takes it down, ForgetPod drops one that is gone without DEL.
	AddPod(ctx context.Context, node, name string) (*pod.Pod, error)
	DelPod(ctx context.Context, p *pod.Pod) error
	ForgetPod(p *pod.Pod)
}

// Fault is one way to break a world.
type Fault interface {
	// Name says what is broken, as a person would: "etcd stopped".
	Name() string
	// Identity says the same for programs. Component and promise are left to the fault's row in the table.
	Identity() Identity
	// Inject registers the heal, breaks, and proves. The error wraps ErrNotProven when breaking went through
	// and cannot be shown.
	Inject(ctx context.Context, w *Injection) error
}

// Limited is a Fault that not every machine can have.
type Limited interface {
	Fault
	// Available says what is missing, and what would bring it.
	Available(w World) error
}

// Mechanical is a Fault that the kernel brings about in one of several ways.
type Mechanical interface {
	Fault
	// Mechanism says which it is on the running kernel, such as "netem".
	Mechanism() string
}

// proofWithin bounds how long a fault may take to show.
const proofWithin = 5 * time.Second

// prove waits until holds reports that the fault shows, and else returns ErrNotProven with what was
// expected.
func prove(
	ctx context.Context,
	within time.Duration,
	what string,
	holds func(context.Context) (bool, error),
) error {
	err := wait.Within(ctx, within, 10*time.Millisecond, func(ctx context.Context) error {
		ok, err := holds(ctx)
		if ok {
			return nil
		}
		return cmp.Or(err, errors.New("it does not show"))
	})
	if err != nil {
		return fmt.Errorf("%w: expected within %s: %s: %w", ErrNotProven, within, what, err)
	}
	return nil
}
