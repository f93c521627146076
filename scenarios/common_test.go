package scenarios

import (
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness/suite"
)

// firstPods lists the first pod of each node.
func firstPods(c *suite.Cluster) []*suite.Pod {
	var first []*suite.Pod
	for _, n := range c.Nodes() {
		first = append(first, c.PodsOn(n)[0])
	}
	return first
}

// fdbOf lists the forwarding entries of a node's overlay device.
func fdbOf(c *suite.Cluster, node string) []suite.Neighbour {
	GinkgoHelper()
	c.NeedsDevice()
	entries, err := c.FDB(node)
	Expect(err).NotTo(HaveOccurred())
	return entries
}

// prefix is netip.MustParsePrefix.
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// linkMTU returns the MTU of a link in a network namespace.
func linkMTU(ns netns.NsHandle, name string) int {
	GinkgoHelper()
	nl, err := netlink.NewHandleAt(ns)
	Expect(err).NotTo(HaveOccurred())
	defer nl.Close()
	link, err := nl.LinkByName(name)
	Expect(err).NotTo(HaveOccurred())
	return link.Attrs().MTU
}

// deviceMTU returns the MTU of a node's overlay device.
func deviceMTU(c *suite.Cluster, name string) int {
	GinkgoHelper()
	m, err := c.Machine(name)
	Expect(err).NotTo(HaveOccurred())
	return linkMTU(m.NetNS(), c.Device())
}
