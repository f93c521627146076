package scenarios

// Somebody changes the kernel behind the agent's back: an administrator, a udev rule, Docker, a firewall
// that is reloaded. Right: it is repaired within a second, without a restart (flannel#869, #1795, #1070,
// #1834, #799).

import (
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/suite"
)

var _ = Describe("tampering", Label("kind:data-plane"), func() {
	// flannel#869, #1070, #1795, #1834. Reported: a device was deleted, set down or given another MAC,
	// routes or rules were lost, and only a restart brought them back. Right: within a second, by itself.
	DescribeTable("is repaired within a second", suite.Red("deaf"),
		func(ctx SpecContext, what suite.Tampering) {
			c := chaos.Running(ctx, suite.Options{})
			before, err := c.DataPlane("node02")
			Expect(err).NotTo(HaveOccurred())
			c.Inject(ctx, suite.Tamper{Node: "node02", What: what})
			c.ExpectRepaired(ctx, "node02", func() ([]string, error) { return c.DataPlane("node02") }, before)
		},
		Entry("device deleted", SpecTimeout(2*time.Minute), Label("issue:flannel-869"), suite.DeviceDeleted),
		Entry("device down", SpecTimeout(2*time.Minute), Label("issue:flannel-1070"), suite.DeviceDown),
		Entry("device's MAC", SpecTimeout(2*time.Minute), Label("issue:flannel-1795"), suite.DeviceMACChanged),
		Entry("routes", SpecTimeout(2*time.Minute), suite.RoutesDeleted),
		Entry("neighbours", SpecTimeout(2*time.Minute), suite.NeighboursDeleted),
		Entry("forwarding entries", SpecTimeout(2*time.Minute), suite.FDBDeleted),
		Entry("all rules flushed", SpecTimeout(2*time.Minute), Label("issue:flannel-1834"), suite.RulesFlushed),
		Entry("forwarding off", SpecTimeout(2*time.Minute), suite.ForwardingOff),
	)

	// flannel#799. Reported: Docker was started after the agent and set the policy of FORWARD to DROP.
	// Right: pods still reach each other.
	It(
		"by a FORWARD policy of DROP is passed through",
		Label("issue:flannel-799"),
		suite.Red("deaf"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			c.Inject(ctx, suite.Tamper{Node: "node02", What: suite.ForwardDrop})
			c.ExpectRecovered(ctx, time.Now(), time.Second)
			c.ExpectFreshPods(ctx, "fresh")
		},
		SpecTimeout(2*time.Minute),
	)
})

// setLinks returns an action that brings links up or down. An uplink that comes back has its default route
// again, which the kernel has dropped.
func setLinks(up bool, names ...string) func(*suite.Machine) error {
	return func(m *suite.Machine) error {
		for _, name := range names {
			link, err := m.Netlink().LinkByName(name)
			if err != nil {
				return err
			}
			if !up {
				if err := m.Netlink().LinkSetDown(link); err != nil {
					return err
				}
				continue
			}
			if err := m.Netlink().LinkSetUp(link); err != nil {
				return err
			}
			gateway := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 168, 200, 1)}
			if err := m.Netlink().RouteReplace(gateway); err != nil {
				return err
			}
		}
		return nil
	}
}

var _ = Describe("uplink", Label("kind:data-plane"), func() {
	// flannel#1759, #877, #1348. Reported: the uplink went down and up, or was deleted and made again, and
	// routes or the VXLAN device on it did not return. Right: they do, without a restart.
	DescribeTable(
		"that goes and comes back carries the overlay again, without a restart",
		suite.Red("deaf"),
		func(ctx SpecContext, gone suite.Fault) {
			c := chaos.Running(ctx, suite.Options{})
			before, err := c.DataPlane("node02")
			Expect(err).NotTo(HaveOccurred())
			c.Inject(ctx, gone)
			c.TalkFor(ctx, 15)
			at := c.Heal(ctx)
			Eventually(ctx, func() ([]string, error) { return c.DataPlane("node02") }).
				WithTimeout(3 * time.Second).WithPolling(5 * time.Millisecond).Should(Equal(before))
			c.ExpectRecovered(ctx, at, 2*time.Second)
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLostBut(ctx, "node02")
		},
		Entry(
			"down and up, and the device with it",
			SpecTimeout(2*time.Minute),
			Label("issue:flannel-1759"),
			suite.Done{
				Node: "node02", What: "uplink and device down",
				Do: setLinks(false, suite.Uplink, "flannel.1"), Undo: setLinks(true, suite.Uplink),
			},
		),
		Entry("replaced by another", SpecTimeout(2*time.Minute), Label("issue:flannel-877"),
			suite.UplinkReplaced{Node: "node02"}),
	)

	// flannel#877. Reported: a node got another address and its peers went on sending to the old one.
	// Right: the new one is published, and they follow.
	It(
		"with another address is told to the peers, without a restart",
		suite.Red("deaf"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			subnet, err := c.SubnetOf("node02")
			Expect(err).NotTo(HaveOccurred())
			mac := c.MAC("node02")
			c.Inject(ctx, suite.UplinkReaddressed{Node: "node02", Addr: prefix("192.168.200.222/24")})
			at := time.Now()
			Eventually(ctx, func() ([]suite.Lease, error) { return c.Leases(ctx) }).WithTimeout(5 * time.Second).
				Should(ContainElement(And(HaveField("Key", subnet), HaveField("PublicIP.String()", "192.168.200.222"))))
			c.ExpectRecovered(ctx, at, 2*time.Second)
			Expect(c.MAC("node02")).To(Equal(mac))
			Expect(c.SubnetOf("node02")).To(Equal(subnet))
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLostBut(ctx, "node02")
		},
		SpecTimeout(2*time.Minute),
	)
})

var _ = Describe("uplink", Label("kind:data-plane"), func() {
	// A node that was off and comes back with another address is still the same node (flannel#1474).
	// Right: it has the subnet that its pods have.
	It("with another address found at a restart keeps the node's subnet", Label("kind:lease"),
		suite.Red("no-owner-records"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			before := subnets(c)
			c.Inject(ctx, suite.AgentStop{Node: "node02"},
				suite.UplinkReaddressed{Node: "node02", Addr: prefix("192.168.200.222/24")})
			c.HealOne(ctx, suite.AgentStop{Node: "node02"})
			Eventually(ctx, c.Leases).Should(And(HaveLen(len(c.Nodes())),
				ContainElement(And(HaveField("Key", before[1]), HaveField("PublicIP.String()", "192.168.200.222")))))
			Expect(subnets(c)).To(Equal(before))
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLostBut(ctx, "node02")
		}, SpecTimeout(2*time.Minute))
})

var _ = Describe("etcd endpoints", Label("kind:survival", "issue:flannel-1633"), func() {
	// flannel#1633, #390. Reported: with the first of the endpoints dead or swallowed, an agent never
	// reached the others. Right: any that lives will do.
	It(
		"that are dead or silent do not keep an agent from a living one",
		suite.Red("first-endpoint-only"),
		func(ctx SpecContext) {
			// Nobody has .99, so what is sent there is lost; nothing listens on port 1 of etcd's machine.
			c := chaos.Cluster(ctx, suite.Options{
				Nodes: 2, Idle: []string{"node01", "node02"},
				EtcdEndpoints: []string{"http://192.168.200.99:2379", "http://192.168.200.10:1"},
			})
			for _, n := range c.Nodes() {
				Expect(c.StartAgent(ctx, n)).To(Succeed())
			}
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.ExpectFreshPods(ctx, "first")
			c.StartMesh(ctx)
			c.TalkFor(ctx, 25)
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#1633, #323. Reported: an agent that started before etcd ended, and was not started again.
	// Right: it waits.
	It("may appear after the agent", suite.Red("exit-without-etcd"), func(ctx SpecContext) {
		suite.Needs(suite.FeatureKeys)
		c := chaos.Cluster(ctx, suite.Options{Nodes: 2, Idle: []string{"node01", "node02"}})
		Expect(c.Etcd().Stop(ctx)).To(Succeed())
		for _, n := range c.Nodes() {
			agent, err := c.LaunchAgent(ctx, n)
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func() []string { return agent.Tail(20) }).
				Should(ContainElement(ContainSubstring("etcd")), "it does not say what it waits for")
			Expect(agent.Running()).To(BeTrue(), "the agent on %s has ended: %v", n, agent.Tail(5))
		}
		c.Step("etcd starts")
		Expect(c.Etcd().Start(ctx)).To(Succeed())
		up := time.Now()
		Eventually(ctx, func() error { return c.KnowsOnly("node01", "node02") }).WithTimeout(5 * time.Second).
			WithPolling(10 * time.Millisecond).Should(Succeed())
		c.Figure("first lease after etcd started", time.Since(up).Seconds(), "s")
		for _, n := range c.Nodes() { // the subnet file comes after the entries
			Eventually(ctx, func() (string, error) { return c.SubnetOf(n) }).ShouldNot(BeEmpty(), n)
		}
		c.ExpectFreshPods(ctx, "fresh")
	}, SpecTimeout(2*time.Minute))
})
