package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/probe"
)

// addPods makes a pod on every node, or on those that are named.
func addPods(ctx context.Context, c *harness.Cluster, name string, nodes ...string) []*pod.Pod {
	GinkgoHelper()
	var pods []*pod.Pod
	if len(nodes) == 0 {
		for _, n := range c.Nodes() {
			if _, err := c.Agent(n); err == nil { // others have never had a subnet
				nodes = append(nodes, n)
			}
		}
	}
	for _, n := range nodes {
		p, err := c.AddPod(ctx, n, fmt.Sprintf("%s-%s", n, name))
		Expect(err).NotTo(HaveOccurred())
		pods = append(pods, p)
	}
	return pods
}

// meshAmong starts the mesh among the first pod of each node, and from each node.
func meshAmong(ctx context.Context, c *harness.Cluster) error {
	var first []*pod.Pod
	for _, n := range c.Nodes() {
		first = append(first, c.PodsOn(n)[0])
	}
	return c.StartMeshAmong(ctx, first)
}

// talkFor waits until every pair of the mesh has had n more echoes decided.
func talkFor(ctx context.Context, c *harness.Cluster, n uint64) {
	GinkgoHelper()
	before := map[string]uint64{}
	for _, p := range c.Mesh().Report().Pairs {
		before[p.From+p.To] = p.Sent
	}
	Expect(before).NotTo(BeEmpty(), "the mesh has not been started")
	Eventually(ctx, func(g Gomega) {
		for _, p := range c.Mesh().Report().Pairs {
			g.Expect(p.Sent).To(BeNumerically(">=", before[p.From+p.To]+n), p.From+" → "+p.To)
		}
	}).WithTimeout(time.Duration(n)*10*c.Options().ProbeInterval + 10*time.Second).Should(Succeed())
}

// expectNothingLost settles the mesh and states that no pair has lost an echo since it began.
func expectNothingLost(ctx context.Context, c *harness.Cluster) {
	GinkgoHelper()
	report, err := c.Mesh().Settle(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(report.Pairs).NotTo(BeEmpty(), "the mesh has not been started")
	for _, p := range report.Pairs {
		Expect(p.Lost).To(BeZero(), "%s → %s lost %d of %d, outages %s", p.From, p.To, p.Lost, p.Sent, p.Outages)
		Expect(p.Sent).To(BeNumerically(">", 0), "%s → %s", p.From, p.To)
	}
}

// expectRepaired states that what was done to a node just now is repaired within a second, and that no pair
// without the node has lost anything. now lists what was tampered with, before is how it was.
func expectRepaired(
	ctx context.Context, c *harness.Cluster, node string, now func() ([]string, error), before []string,
) {
	GinkgoHelper()
	at := time.Now()
	Eventually(ctx, now).WithTimeout(time.Second).WithPolling(5*time.Millisecond).
		Should(Equal(before), "what was tampered with is not put right")
	c.Figure("repaired after", time.Since(at).Seconds(), "s")
	expectRecovered(ctx, c, at, time.Second)
	expectNothingLostBut(ctx, c, node)
}

// expectRecovered states that every pair answers again, and has from within some time after a moment. It
// asks once all that was sent is decided: an echo stays open for longer than a pair needs to lose many.
func expectRecovered(ctx context.Context, c *harness.Cluster, at time.Time, within time.Duration) {
	GinkgoHelper()
	talkFor(ctx, c, uint64(within/c.Options().ProbeInterval))
	report, err := c.Mesh().Settle(ctx)
	Expect(err).NotTo(HaveOccurred())
	recovery, ok := report.Recovery(at)
	Expect(ok).To(BeTrue(), "a pair still does not answer")
	Expect(recovery).To(BeNumerically("<", within))
}

// expectPermanent waits until a node has entries for all its peers, and states that they do not age.
func expectPermanent(ctx context.Context, c *harness.Cluster, node string) {
	GinkgoHelper()
	needsDevice(c)
	n, err := c.Node(node)
	Expect(err).NotTo(HaveOccurred())
	lines := func(entries []observe.Neighbour, err error) ([]string, error) {
		var all []string
		for _, e := range entries {
			all = append(all, e.String())
		}
		return all, err
	}
	permanent := And(HaveLen(len(c.Nodes())-1), HaveEach(HaveSuffix("PERMANENT")))
	Eventually(ctx, func() ([]string, error) { return lines(observe.Neighbours(n.NetNS(), c.Device())) }).
		Should(permanent, "neighbours of %s", node)
	Eventually(ctx, func() ([]string, error) { return lines(observe.FDB(n.NetNS(), c.Device())) }).
		Should(permanent, "forwarding entries of %s", node)
}

// expectNothingLostBut is expectNothingLost for the pairs that a node has no part in.
func expectNothingLostBut(ctx context.Context, c *harness.Cluster, node string) {
	GinkgoHelper()
	report, err := c.Mesh().Settle(ctx)
	Expect(err).NotTo(HaveOccurred())
	lost, sent := report.Lost(func(p probe.PairReport) bool { return !p.On(node) })
	Expect(sent).To(BeNumerically(">", 0))
	Expect(lost).To(BeZero(), "of %d echoes of pairs that %s has no part in", sent, node)
}

// macOf returns the MAC of a node's overlay device.
func macOf(c *harness.Cluster, node string) string {
	GinkgoHelper()
	_, mac, _ := strings.Cut(deviceOf(c, node), " ")
	return mac
}

// fdbOf lists the forwarding entries of a node's overlay device.
func fdbOf(c *harness.Cluster, m *node.Machine) []observe.Neighbour {
	GinkgoHelper()
	needsDevice(c)
	entries, err := observe.FDB(m.NetNS(), c.Device())
	Expect(err).NotTo(HaveOccurred())
	return entries
}

// ruleHandles identifies every nftables rule of a node: rules that are written again get other handles.
func ruleHandles(c *harness.Cluster, name string) []string {
	GinkgoHelper()
	m, err := c.Machine(name)
	Expect(err).NotTo(HaveOccurred())
	handles, err := observe.RuleHandles(m.NetNS())
	Expect(err).NotTo(HaveOccurred())
	Expect(handles).NotTo(BeEmpty())
	return handles
}

// ruleSet tells every nftables rule of a node by what it does.
func ruleSet(c *harness.Cluster, name string) []string {
	GinkgoHelper()
	m, err := c.Machine(name)
	Expect(err).NotTo(HaveOccurred())
	rules, err := observe.RuleSet(m.NetNS())
	Expect(err).NotTo(HaveOccurred())
	return rules
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
func deviceMTU(c *harness.Cluster, name string) int {
	GinkgoHelper()
	m, err := c.Machine(name)
	Expect(err).NotTo(HaveOccurred())
	return linkMTU(m.NetNS(), c.Device())
}

// number is strconv.Atoi.
func number(text string) int {
	GinkgoHelper()
	n, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred())
	return n
}
