package suite

import (
	"context"
	"fmt"

	"github.com/onsi/ginkgo/v2"
	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/observe"
)

// Neighbours lists the neighbour entries of a node's overlay device.
func (c *Cluster) Neighbours(node string) ([]Neighbour, error) {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureDevice)
	n, err := c.Node(node)
	if err != nil {
		return nil, err
	}
	return observe.Neighbours(n.NetNS(), n.Device())
}

// FDB lists the forwarding entries of a node's overlay device.
func (c *Cluster) FDB(node string) ([]Neighbour, error) {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureDevice)
	n, err := c.Node(node)
	if err != nil {
		return nil, err
	}
	return observe.FDB(n.NetNS(), n.Device())
}

// KernelLines reads what a node's kernel holds, as lines that read like those of ip and bridge.
func (c *Cluster) KernelLines(node string) (observe.Lines, error) {
	n, err := c.Node(node)
	if err != nil {
		return observe.Lines{}, err
	}
	s, err := observe.Read(n.NetNS())
	return s.Lines(), err
}

// FDBOf lists the forwarding entries of a device in a network namespace.
func FDBOf(handle netns.NsHandle, device string) ([]Neighbour, error) {
	return observe.FDB(handle, device)
}

// NeighbourState returns the name of a neighbour's state as ip neigh prints it.
func NeighbourState(state int) string { return observe.StateName(state) }

// SysctlName is a device's name as it is written in the key of a sysctl.
func SysctlName(device string) string { return node.SysctlName(device) }

// InNetNS runs fn on a thread inside a network namespace. Sockets that fn opens stay in it.
func InNetNS(handle netns.NsHandle, fn func() error) error { return ns.Do(handle, fn) }

// Complete reads a list of the kernel again when a change has interrupted it (NLM_F_DUMP_INTR).
func Complete[T any](read func() ([]T, error)) ([]T, error) { return ns.Complete(read) }

// Revision is etcd's revision, which counts its changes.
func Revision(ctx context.Context, c *Cluster) (int64, error) { return fault.Revision(ctx, c) }

// RuleHandles identifies every nftables rule of a node: rules that are written again get other handles.
func (c *Cluster) RuleHandles(node string) []string {
	ginkgo.GinkgoHelper()
	n, err := c.Node(node)
	must(err, "list the rules")
	handles, err := observe.RuleHandles(n.NetNS())
	must(err, "list the rules")
	if len(handles) == 0 {
		ginkgo.Fail(node + " has no nftables rules")
	}
	return handles
}

// RuleSet tells every nftables rule of a node by what it does.
func (c *Cluster) RuleSet(node string) []string {
	ginkgo.GinkgoHelper()
	n, err := c.Node(node)
	must(err, "list the rules")
	rules, err := observe.RuleSet(n.NetNS())
	must(err, "list the rules")
	return rules
}

// WatchNeighbours follows the entries of a node's overlay device until the spec ends.
func (c *Cluster) WatchNeighbours(node string) *NeighbourWatch {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureDevice)
	n, err := c.Node(node)
	must(err, "watch neighbours")
	w, err := observe.WatchNeighbours(n.NetNS(), n.Device())
	must(err, "watch neighbours")
	ginkgo.DeferCleanup(w.Close)
	return w
}

// WatchARP collects the ARP packets on a node's overlay device until the spec ends.
func (c *Cluster) WatchARP(node string) *ARPWatch {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureDevice)
	n, err := c.Node(node)
	must(err, "watch ARP")
	w, err := observe.WatchARP(n.NetNS(), n.Device())
	must(err, "watch ARP")
	ginkgo.DeferCleanup(w.Close)
	return w
}

// DeviceIdentity is the index and the MAC of a node's overlay device, which must not change over a restart
// of its agent.
func (c *Cluster) DeviceIdentity(node string) string {
	ginkgo.GinkgoHelper()
	c.NeedsDevice()
	n, err := c.Node(node)
	must(err, "look at the device")
	link, err := n.Netlink().LinkByName(n.Device())
	must(err, "look at the device")
	return fmt.Sprintf("%d %s", link.Attrs().Index, link.Attrs().HardwareAddr)
}

// MAC is the MAC of a node's overlay device.
func (c *Cluster) MAC(node string) string {
	ginkgo.GinkgoHelper()
	c.NeedsDevice()
	n, err := c.Node(node)
	must(err, "look at the device")
	link, err := n.Netlink().LinkByName(n.Device())
	must(err, "look at the device")
	return link.Attrs().HardwareAddr.String()
}
