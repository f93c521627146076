package scenarios

// What an agent finds when it starts: no uplink yet, somebody else's addresses, entries of nodes that are
// gone, all nodes rebooting at once. Right: it waits, leaves alone what is not its own, clears what no lease
// explains, and comes back as it was (flannel#418, #1060, #2554, #1474).

import (
	"context"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/suite"
)

// withAddress returns an action that adds addresses to a link, or takes them away.
func withAddress(link string, add bool, addresses ...string) func(*suite.Machine) error {
	return func(m *suite.Machine) error {
		l, err := m.Netlink().LinkByName(link)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			parsed, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if add {
				err = m.Netlink().AddrAdd(l, parsed)
			} else {
				err = m.Netlink().AddrDel(l, parsed)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

var _ = Describe("agent at start", Label("kind:start"), func() {
	// flannel#418, #510, #1353. Reported: an agent started before the uplink had its address took none or
	// a wrong one, or ended in a way that no supervisor repaired. Right: it waits, or ends as a failure
	// with the reason.
	It(
		"waits for its uplink's address, or ends as a failure",
		Label("issue:flannel-418"),
		suite.Red("uplink-once"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{Nodes: 5, Idle: []string{"node05"}})
			const addr = "192.168.200.205/24"
			c.Inject(ctx, suite.Done{
				Node: "node05", What: "uplink without an address",
				Do: withAddress(suite.Uplink, false, addr), Undo: withAddress(suite.Uplink, true, addr),
			})
			agent, err := c.LaunchAgent(ctx, "node05")
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func() []string { return agent.Tail(20) }).WithTimeout(5*time.Second).
				ShouldNot(BeEmpty(), "it does not say what it waits for")
			c.TalkFor(ctx, 25)
			if !agent.Running() {
				Expect(agent.ExitErr()).To(HaveOccurred(), "it ended with success: %v", agent.Tail(5))
			}
			c.Heal(ctx)
			c.Step("a supervisor starts it again if it has ended")
			Expect(c.StartAgent(ctx, "node05")).To(Succeed())
			Eventually(ctx, func() (string, error) { return c.LeaseOf(ctx, "node05") }).
				WithTimeout(10 * time.Second).ShouldNot(BeEmpty())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#1060. Reported: an agent refused to start because somebody else had put an address on its
	// device. Right: its own is put right, a foreign one left alone.
	It("puts its own address right and leaves foreign ones on the device alone", Label("issue:flannel-1060"),
		suite.Red("foreign-address-fatal"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			const foreign, second = "169.254.7.7/32", "172.16.255.0/32"
			c.Inject(ctx, suite.AgentStop{Node: "node02"}, suite.Done{
				Node: "node02", What: "foreign addresses on the device",
				Do: withAddress(c.Device(), true, foreign, second),
			})
			c.Heal(ctx)
			m, err := c.Machine("node02")
			Expect(err).NotTo(HaveOccurred())
			own, err := c.SubnetOf("node02")
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func(g Gomega) {
				link, err := m.Netlink().LinkByName(c.Device())
				g.Expect(err).NotTo(HaveOccurred())
				addrs, err := m.Netlink().AddrList(link, netlink.FAMILY_V4)
				g.Expect(err).NotTo(HaveOccurred())
				var have []string
				for _, a := range addrs {
					have = append(have, a.IPNet.String())
				}
				ip, _, _ := strings.Cut(own, "-")
				g.Expect(have).To(ConsistOf(foreign, ip+"/32"))
			}).WithTimeout(5 * time.Second).Should(Succeed())
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))

	// flannel#2554, #1604, #996. Reported: a node left the cluster while an agent was down, and its routes
	// and entries stayed for ever, also when the subnet was another's. Right: the agent clears at start
	// what no lease explains.
	It("clears what no lease explains, also when the subnet is another's then", Label("issue:flannel-2554"),
		suite.Red("no-clean-up-at-start"), func(ctx SpecContext) {
			c := chaos.Running(
				ctx,
				suite.Options{Network: prefix("172.16.0.0/21"), Nodes: 5, Idle: []string{"node05"}},
			)
			c.Inject(ctx, suite.AgentKill{Node: "node01"}, suite.AgentStop{Node: "node03"})
			c.Step("node03 is decommissioned while node01's agent is away")
			Expect(c.Retire(ctx, "node03")).To(Succeed())
			c.HealOne(ctx, suite.AgentKill{Node: "node01"})
			Eventually(ctx, func() error { return c.KnowsOnly("node01", "node02", "node04") }).
				WithTimeout(5 * time.Second).Should(Succeed())
			c.ExpectNothingLostBut(ctx, "node03")
		}, SpecTimeout(2*time.Minute))

	// flannel#1474, #1244. Reported: after a power cut all nodes came back with other subnets or other
	// MACs, and pods of before were lost. Right: the same, also before etcd is back.
	It("of all nodes at once, rebooted, before etcd is back and after",
		suite.Long, Label("issue:flannel-1244"), suite.Breaks("node-reboot"), suite.Red("no-saved-state"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			before := subnets(c)
			macs := map[string]string{}
			for _, n := range c.Nodes() {
				macs[n] = c.MAC(n)
			}
			c.Inject(ctx, suite.EtcdStop{})
			c.Step("all nodes are rebooted while etcd is away")
			for _, n := range c.Nodes() {
				Expect(c.Reboot(ctx, n)).To(Succeed())
			}
			startAll(ctx, c)
			c.Step("the container runtimes say which pods there are: none")
			for _, n := range c.Nodes() {
				Expect(c.CollectGarbage(ctx, n)).To(Succeed())
			}
			Expect(subnets(c)).To(Equal(before))
			for n, mac := range macs {
				Expect(c.MAC(n)).To(Equal(mac), n)
			}
			c.Step("a pod is made on every node")
			fresh := c.AddPods(ctx, "fresh")
			c.ExpectReach(ctx, suite.Each(fresh, fresh, true)...)
			c.Heal(ctx)
			Eventually(ctx, func() []string { return leasesOf(ctx, c) }).WithTimeout(10 * time.Second).
				Should(Equal(before))
			c.ExpectReach(ctx, suite.Each(fresh, fresh, true)...)
		}, SpecTimeout(2*time.Minute))

	// No report: an administrator sends SIGHUP to have a daemon read everything again (daemon(7)). Right:
	// it looks again and loses nothing.
	It("takes SIGHUP for a request to look again, not to end", suite.Red("hangup-ends"), func(ctx SpecContext) {
		c := chaos.Running(ctx, suite.Options{})
		agent, err := c.Agent("node02")
		Expect(err).NotTo(HaveOccurred())
		Expect(agent.Signal(syscall.SIGHUP)).To(Succeed())
		if suite.IsOurs() {
			Eventually(ctx, func() []string { return agent.Tail(20) }).
				Should(ContainElement(ContainSubstring("reading everything again")))
		}
		c.TalkFor(ctx, 25)
		Expect(agent.Running()).To(BeTrue(), "SIGHUP ended the agent")
		c.ExpectNothingLost(ctx)
	}, SpecTimeout(2*time.Minute))
})

// startAll starts every node's agent, as many machines that boot do.
func startAll(ctx context.Context, c *suite.Cluster) {
	GinkgoHelper()
	for _, n := range c.Nodes() {
		_, err := c.LaunchAgent(ctx, n)
		Expect(err).NotTo(HaveOccurred())
	}
	for _, n := range c.Nodes() {
		Eventually(ctx, func() (string, error) { return c.SubnetOf(n) }).WithTimeout(10*time.Second).
			ShouldNot(BeEmpty(), n)
	}
	Expect(c.WaitConverged(ctx)).To(Succeed())
}
