package scenarios

// flannel#2300, #1629, #1789 and k3s#9957. IPv6 was switched on in networks in which some nodes had leases
// of IPv4 only, or no IPv6 address. A node that cannot have both families was no peer at all.
//
// Right: both families where both ends have them, and IPv4 goes on everywhere.

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/suite"
)

var _ = Describe("flannel-2300", Label("issue:flannel-2300", "kind:dual-stack"), func() {
	It("loses nothing in either family while etcd and an agent are away", func(ctx SpecContext) {
		needs(driver.FeatureIPv6)
		c := chaos.Cluster(ctx, harness.Options{Agent: ours(), IPv6: true})
		Expect(c.StartMesh(ctx)).To(Succeed())
		talkFor(ctx, c, 50)
		suite.Inject(ctx, c, fault.EtcdStop{}, fault.AgentKill{Node: "node04"})
		talkFor(ctx, c, 200)
		for _, name := range c.Nodes() {
			expectPermanent(c, name)
			n, err := c.Node(name)
			Expect(err).NotTo(HaveOccurred())
			Expect(linkMTU(n.NetNS(), "flannel-v6.1")).To(Equal(1430))
			entries, err := observe.FDB(n.NetNS(), "flannel-v6.1")
			Expect(err).NotTo(HaveOccurred())
			Expect(entries).To(HaveLen(len(c.Nodes())-1), "IPv6 peers of %s", name)
			for _, e := range entries {
				Expect(e.String()).To(HaveSuffix("PERMANENT"))
			}
		}
		_, err := c.HealOne(ctx, fault.EtcdStop{})
		Expect(err).NotTo(HaveOccurred())
		suite.Heal(ctx, c)
		_, err = c.Mesh().Report().Pair(harness.Over6("node01-pod1"), harness.Over6("node04-pod1"))
		Expect(err).NotTo(HaveOccurred())
		expectNothingLost(ctx, c)
	}, SpecTimeout(time.Minute))

	It("goes on over IPv4 with a node that has no IPv6 address", suite.Red("both-families-or-none"),
		func(ctx SpecContext) {
			needs(driver.FeatureIPv6)
			c := chaos.Cluster(ctx, harness.Options{
				Agent: ours(), IPv6: true, NoIPv6: []string{"node04"}, Idle: []string{"node04"},
			})
			suite.Step(c, "node04 joins, which has no IPv6 address")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			Expect(addPods(ctx, c, "pod1", "node04")[0].Addr6().IsValid()).To(BeFalse())
			Expect(c.StartMesh(ctx)).To(Succeed())
			talkFor(ctx, c, 100)
			_, err := c.Mesh().Report().Pair(harness.Over6("node01-pod1"), harness.Over6("node02-pod1"))
			Expect(err).NotTo(HaveOccurred())
			expectNothingLost(ctx, c)
		}, SpecTimeout(time.Minute))
})
