package scenarios

// Whose a subnet is: leases that are late, raced for, reserved, or renewed while etcd is slow. Right: nobody
// is ever disturbed by another's lease, and no agent gives up (flannel#1343, #1289, #1329, #1240, #1531).

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/nemesh/nemesh/harness/suite"
)

// holder returns the lease over a subnet.
func holder(ctx context.Context, c *suite.Cluster, key string) (suite.Lease, error) {
	leases, err := c.Leases(ctx)
	for _, l := range leases {
		if l.Key == key {
			return l, err
		}
	}
	return suite.Lease{}, err
}

// haveTime matches n leases that each have at least as long to live.
func haveTime(n int, least time.Duration) types.GomegaMatcher {
	return And(HaveLen(n), HaveEach(HaveField("TTL", BeNumerically(">=", least))))
}

// waiveMoved lets pods of a node that has moved to another subnet keep the addresses of the old one.
func waiveMoved(c *suite.Cluster) {
	GinkgoHelper()
	const why = "pods that were there before the node moved keep their addresses, which are another node's now"
	c.Waive("pod-address-in-lease", why)
	c.Waive("cni0-equals-subnet", "the bridge changes with the next pod")
}

// expire waits until etcd has ended a node's lease. Where the time to live cannot be chosen the lease is
// revoked, which etcd's watchers cannot tell apart.
func expire(ctx context.Context, c *suite.Cluster, name string) {
	GinkgoHelper()
	if !c.Has(suite.FeatureLeaseTTL) {
		c.Inject(ctx, suite.LeaseRevoked{Node: name})
	}
	c.Inject(ctx, suite.LeaseExpire{Node: name, Within: 10 * time.Second})
}

var _ = Describe("lease", Label("kind:lease"), func() {
	// flannel#1343. Reported: a node cut off from etcd renewed its lease late, after it had expired and
	// another node had the subnet; both then believed that it was theirs. Right: the renewal is refused,
	// and the late one moves.
	It("of another is never disturbed by a late renewal", Label("issue:flannel-1343"),
		suite.Long, suite.Red("renew-unconditionally"), func(ctx SpecContext) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{Nodes: 4, Idle: []string{"node04"}, LeaseTTL: 2 * time.Second})
			given, err := c.SubnetOf("node01")
			Expect(err).NotTo(HaveOccurred())
			c.Inject(ctx, suite.AgentPause{Node: "node01"})
			expire(ctx, c, "node01")
			c.Inject(ctx, suite.SubnetTaken{From: "node01", By: "node04"})
			waiveMoved(c)
			c.Heal(ctx)
			Eventually(ctx, func() (string, error) { return c.SubnetOf("node01") }).WithTimeout(5 * time.Second).
				ShouldNot(Equal(given))
			owner, err := c.Machine("node04")
			Expect(err).NotTo(HaveOccurred())
			Consistently(ctx, func() (suite.Lease, error) { return holder(ctx, c, given) }).
				WithTimeout(3*time.Second).WithPolling(50*time.Millisecond).
				Should(HaveField("PublicIP", owner.Addr()), "the key was written by somebody else")
			c.TalkFor(ctx, 10)
			c.ExpectNothingLostBut(ctx, "node01")
		}, SpecTimeout(2*time.Minute))

	// flannel#1289. Reported: a node was off, its subnet was given away, and it came back with the old
	// subnet.env; no new pod could be set up, since cni0 had the old address. Right: it takes another
	// subnet, and the stale cni0 is healed.
	It("given away while its node was off makes the node move, and its stale cni0 stops no new pod",
		Label("issue:flannel-1289"), suite.Red("forget-subnet"), func(ctx SpecContext) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{Nodes: 4, Idle: []string{"node04"}, LeaseTTL: 2 * time.Second})
			given, err := c.SubnetOf("node01")
			Expect(err).NotTo(HaveOccurred())
			c.Inject(ctx, suite.AgentStop{Node: "node01"})
			expire(ctx, c, "node01")
			c.Inject(ctx, suite.SubnetTaken{From: "node01", By: "node04"})
			waiveMoved(c)
			c.Heal(ctx)
			var moved string
			Eventually(ctx, func(g Gomega) {
				moved, err = c.SubnetOf("node01")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(moved).NotTo(Equal(given))
			}).WithTimeout(5 * time.Second).Should(Succeed())
			Expect(c.LeaseOf(ctx, "node04")).To(Equal(given))
			c.Step("a pod is made on the node that moved")
			p, err := c.AddPod(ctx, "node01", "node01-fresh")
			Expect(err).NotTo(HaveOccurred())
			Expect(inSubnet(p, moved)).To(BeTrue(), "%s is not in %s", p.Addr(), moved)
			c.ExpectNothingLostBut(ctx, "node01")
		}, SpecTimeout(2*time.Minute))

	// flannel#1329. Reported: a key without a TTL, put to reserve a subnet for a node, was turned into an
	// ordinary lease by the agent and expired. Right: it stays without a lease for ever.
	It("that is a reservation stays one", Label("issue:flannel-1329"), suite.Red("reservation-taken"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{Nodes: 4, Idle: []string{"node04"}, LeaseTTL: 2 * time.Second})
			m, err := c.Machine("node04")
			Expect(err).NotTo(HaveOccurred())
			taken := subnets(c, "node01", "node02", "node03")
			reserved := "172.16.77.0-24"
			if slices.Contains(taken, reserved) {
				reserved = "172.16.78.0-24"
			}
			Expect(taken).NotTo(ContainElement(reserved))
			c.Inject(ctx, suite.KeysPut{What: "a reservation for node04", Keys: map[string]string{
				"subnets/" + reserved: fmt.Sprintf(`{"PublicIP":%q,"PublicIPv6":null,"BackendType":"vxlan",`+
					`"BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:05"}}`, m.Addr()),
			}})
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.SubnetOf("node04")).To(Equal(reserved))
			unbound := HaveField("ID", int64(0))
			Consistently(ctx, func() (suite.Lease, error) { return holder(ctx, c, reserved) }).
				WithTimeout(3*time.Second).WithPolling(100*time.Millisecond).
				Should(unbound, "the reservation has become a lease that ends")
			c.Inject(ctx, suite.AgentStop{Node: "node04"})
			Expect(holder(ctx, c, reserved)).To(And(HaveField("Key", reserved), unbound))
			c.ExpectNothingLostBut(ctx, "node04")
		}, SpecTimeout(2*time.Minute))

	// flannel#1240. Reported: a lease was renewed in its last hour only, and one failed renewal lost it.
	// Right: well before it ends, and again soon after a failure.
	It(
		"is renewed early, and again after a renewal has failed",
		Label("issue:flannel-1240"), suite.Breaks("etcd-pause"),
		suite.Long, suite.Red("renewal-gives-up"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureLeaseTTL)
			const ttl = 6 * time.Second
			c := chaos.Running(ctx, suite.Options{LeaseTTL: ttl})
			before, err := c.EtcdLeases(ctx)
			Expect(err).NotTo(HaveOccurred())
			agent, err := c.Agent("node01")
			Expect(err).NotTo(HaveOccurred())
			c.Inject(ctx, suite.EtcdPause{})
			c.Step("a renewal fails")
			Eventually(ctx, func() []string { return agent.Tail(20) }).WithPolling(10 * time.Millisecond).
				WithTimeout(ttl).Should(ContainElement(ContainSubstring("cannot renew the lease")))
			c.Heal(ctx)
			Eventually(ctx, func() ([]suite.Lease, error) { return c.Leases(ctx) }).
				Should(haveTime(len(c.Nodes()), ttl/2), "the leases are not renewed")
			Consistently(ctx, func() ([]suite.Lease, error) { return c.Leases(ctx) }).
				WithTimeout(ttl+ttl/2).WithPolling(100*time.Millisecond).
				Should(haveTime(len(c.Nodes()), time.Second), "the leases are not renewed")
			Expect(c.EtcdLeases(ctx)).To(ConsistOf(before), "a lease was lost and granted anew")
			Expect(agent.Running()).To(BeTrue())
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#1531, #958, #779. Reported: of many agents that start together some lose the race for a
	// subnet, and exit or know only some of the others. Right: everybody has a subnet and knows everybody.
	It("goes to each of thirty agents that start at once, some killed on the way and etcd paused",
		Serial, // thirty agents that start take all there is, and a mesh beside them would lose to that
		Label("issue:flannel-1531"), suite.Breaks("agent-kill", "etcd-pause"), suite.Red("die-on-lost-race"),
		func(ctx SpecContext) {
			const nodes = 30
			var idle []string
			for i := range nodes {
				idle = append(idle, fmt.Sprintf("node%02d", i+1))
			}
			// 31 subnets for 30 nodes: nearly every choice is somebody else's too.
			c := chaos.Cluster(ctx, suite.Options{
				Nodes: nodes, Idle: idle, Network: prefix("172.16.0.0/19"), PodsPerNode: -1,
			})
			for _, n := range idle {
				_, err := c.LaunchAgent(ctx, n)
				Expect(err).NotTo(HaveOccurred())
			}
			stillRun := func(nodes ...string) {
				GinkgoHelper()
				for _, n := range nodes {
					agent, err := c.Agent(n)
					Expect(err).NotTo(HaveOccurred())
					Expect(agent.Running()).To(BeTrue(), "the agent on %s ended: %s", n, strings.Join(agent.Tail(5), "\n"))
				}
			}
			c.Inject(ctx, suite.EtcdPause{})
			stillRun("node03", "node17") // no race is lost while etcd is paused
			c.Inject(ctx, suite.AgentKill{Node: "node03"}, suite.AgentKill{Node: "node17"})
			c.HealOne(ctx, suite.EtcdPause{}) // the killed ones wait for it
			c.Heal(ctx)
			converged := c.WaitConverged(ctx)
			stillRun(idle...) // before what follows from it
			Expect(converged).To(Succeed())
			leases, err := c.Leases(ctx)
			Expect(err).NotTo(HaveOccurred())
			owners := map[string]bool{}
			for _, l := range leases {
				owners[l.PublicIP.String()] = true
			}
			Expect(leases).To(HaveLen(nodes))
			Expect(owners).To(HaveLen(nodes), "a node has two subnets")
			for _, n := range idle {
				Expect(fdbOf(c, n)).To(HaveLen(nodes-1), "forwarding entries of %s", n)
			}
		}, SpecTimeout(2*time.Minute))

	// A node that is merely late should find its subnet free (terraform-kubernetes-installer#5). Right:
	// subnets that nobody has owned are given away first.
	It("that has expired is the last to be given away", suite.Red("no-owner-records"), func(ctx SpecContext) {
		suite.Needs(suite.FeatureEtcdV3)
		c := chaos.Running(ctx, suite.Options{
			Network: prefix("172.16.0.0/21"), Nodes: 7, Idle: []string{"node05", "node06", "node07"},
			LeaseTTL: 2 * time.Second,
		})
		subnet, err := c.SubnetOf("node04")
		Expect(err).NotTo(HaveOccurred())
		c.Inject(ctx, suite.AgentPause{Node: "node04"})
		expire(ctx, c, "node04")
		c.Step("others join, for whom there are subnets that nobody has owned")
		for _, n := range []string{"node05", "node06", "node07"} {
			Expect(c.StartAgent(ctx, n)).To(Succeed())
		}
		Expect(subnets(c, "node05", "node06", "node07")).NotTo(ContainElement(subnet))
		c.TalkFor(ctx, 10)
		c.Heal(ctx)
		Eventually(ctx, func() (string, error) { return c.LeaseOf(ctx, "node04") }).WithTimeout(5 * time.Second).
			Should(Equal(subnet))
		report, err := c.Mesh().Settle(ctx)
		Expect(err).NotTo(HaveOccurred())
		lost, _ := report.Lost(func(suite.PairReport) bool { return true })
		Expect(lost).To(BeZero(), "peers of the node whose lease had expired")
	}, SpecTimeout(2*time.Minute))
})
