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

	"github.com/nemesh/nemesh/harness"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/suite"
)

// holder returns the lease over a subnet.
func holder(ctx context.Context, c *harness.Cluster, key string) (harness.Lease, error) {
	leases, err := c.Leases(ctx)
	for _, l := range leases {
		if l.Key == key {
			return l, err
		}
	}
	return harness.Lease{}, err
}

// haveTime matches n leases that each have at least as long to live.
func haveTime(n int, least time.Duration) types.GomegaMatcher {
	return And(HaveLen(n), HaveEach(HaveField("TTL", BeNumerically(">=", least))))
}

// waiveMoved lets pods of a node that has moved to another subnet keep the addresses of the old one.
func waiveMoved(c *harness.Cluster) {
	GinkgoHelper()
	const why = "pods that were there before the node moved keep their addresses, which are another node's now"
	suite.Waive(c, "pod-address-in-lease", why)
	suite.Waive(c, "cni0-equals-subnet", "the bridge changes with the next pod")
}

// expire waits until etcd has ended a node's lease. Where the time to live cannot be chosen the lease is
// revoked, which etcd's watchers cannot tell apart.
func expire(ctx context.Context, c *harness.Cluster, name string) {
	GinkgoHelper()
	if driver.Lacks(c.Options().Agent, driver.FeatureLeaseTTL) != nil {
		suite.Inject(ctx, c, fault.LeaseRevoked{Node: name})
	}
	suite.Inject(ctx, c, fault.LeaseExpire{Node: name, Within: 10 * time.Second})
}

var _ = Describe("lease", Label("kind:lease"), func() {
	// flannel#1343. Reported: a node cut off from etcd renewed its lease late, after it had expired and
	// another node had the subnet; both then believed that it was theirs. Right: the renewal is refused,
	// and the late one moves.
	It("of another is never disturbed by a late renewal", Label("issue:flannel-1343"),
		long, suite.Red("renew-unconditionally"), func(ctx SpecContext) {
			needs(driver.FeatureEtcdV3)
			c := running(ctx, harness.Options{Nodes: 4, Idle: []string{"node04"}, LeaseTTL: 2 * time.Second})
			given, err := c.SubnetOf("node01")
			Expect(err).NotTo(HaveOccurred())
			suite.Inject(ctx, c, fault.AgentPause{Node: "node01"})
			expire(ctx, c, "node01")
			suite.Inject(ctx, c, fault.SubnetTaken{From: "node01", By: "node04"})
			waiveMoved(c)
			suite.Heal(ctx, c)
			Eventually(ctx, func() (string, error) { return c.SubnetOf("node01") }).WithTimeout(5 * time.Second).
				ShouldNot(Equal(given))
			owner, err := c.Machine("node04")
			Expect(err).NotTo(HaveOccurred())
			Consistently(ctx, func() (harness.Lease, error) { return holder(ctx, c, given) }).
				WithTimeout(3*time.Second).WithPolling(50*time.Millisecond).
				Should(HaveField("PublicIP", owner.Addr()), "the key was written by somebody else")
			talkFor(ctx, c, 10)
			expectNothingLostBut(ctx, c, "node01")
		}, SpecTimeout(time.Minute))

	// flannel#1289. Reported: a node was off, its subnet was given away, and it came back with the old
	// subnet.env; no new pod could be set up, since cni0 had the old address. Right: it takes another
	// subnet, and the stale cni0 is healed.
	It("given away while its node was off makes the node move, and its stale cni0 stops no new pod",
		Label("issue:flannel-1289"), suite.Red("forget-subnet"), func(ctx SpecContext) {
			needs(driver.FeatureEtcdV3)
			c := running(ctx, harness.Options{Nodes: 4, Idle: []string{"node04"}, LeaseTTL: 2 * time.Second})
			given, err := c.SubnetOf("node01")
			Expect(err).NotTo(HaveOccurred())
			suite.Inject(ctx, c, fault.AgentStop{Node: "node01"})
			expire(ctx, c, "node01")
			suite.Inject(ctx, c, fault.SubnetTaken{From: "node01", By: "node04"})
			waiveMoved(c)
			suite.Heal(ctx, c)
			var moved string
			Eventually(ctx, func(g Gomega) {
				moved, err = c.SubnetOf("node01")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(moved).NotTo(Equal(given))
			}).WithTimeout(5 * time.Second).Should(Succeed())
			Expect(c.LeaseOf(ctx, "node04")).To(Equal(given))
			suite.Step(c, "a pod is made on the node that moved")
			p, err := c.AddPod(ctx, "node01", "node01-fresh")
			Expect(err).NotTo(HaveOccurred())
			Expect(inSubnet(p, moved)).To(BeTrue(), "%s is not in %s", p.Addr(), moved)
			expectNothingLostBut(ctx, c, "node01")
		}, SpecTimeout(time.Minute))

	// flannel#1329. Reported: a key without a TTL, put to reserve a subnet for a node, was turned into an
	// ordinary lease by the agent and expired. Right: it stays without a lease for ever.
	It("that is a reservation stays one", Label("issue:flannel-1329"), suite.Red("reservation-taken"),
		func(ctx SpecContext) {
			needs(driver.FeatureEtcdV3)
			c := running(ctx, harness.Options{Nodes: 4, Idle: []string{"node04"}, LeaseTTL: 2 * time.Second})
			m, err := c.Machine("node04")
			Expect(err).NotTo(HaveOccurred())
			taken := subnets(c, "node01", "node02", "node03")
			reserved := "172.16.77.0-24"
			if slices.Contains(taken, reserved) {
				reserved = "172.16.78.0-24"
			}
			Expect(taken).NotTo(ContainElement(reserved))
			suite.Inject(ctx, c, fault.KeysPut{What: "a reservation for node04", Keys: map[string]string{
				"subnets/" + reserved: fmt.Sprintf(`{"PublicIP":%q,"PublicIPv6":null,"BackendType":"vxlan",`+
					`"BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:05"}}`, m.Addr()),
			}})
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.SubnetOf("node04")).To(Equal(reserved))
			unbound := HaveField("ID", int64(0))
			Consistently(ctx, func() (harness.Lease, error) { return holder(ctx, c, reserved) }).
				WithTimeout(3*time.Second).WithPolling(100*time.Millisecond).
				Should(unbound, "the reservation has become a lease that ends")
			suite.Inject(ctx, c, fault.AgentStop{Node: "node04"})
			Expect(holder(ctx, c, reserved)).To(And(HaveField("Key", reserved), unbound))
			expectNothingLostBut(ctx, c, "node04")
		}, SpecTimeout(time.Minute))

	// flannel#1240. Reported: a lease was renewed in its last hour only, and one failed renewal lost it.
	// Right: well before it ends, and again soon after a failure.
	It(
		"is renewed early, and again after a renewal has failed",
		Label("issue:flannel-1240"), suite.Breaks("etcd-pause"),
		long, suite.Red("renewal-gives-up"),
		func(ctx SpecContext) {
			needs(driver.FeatureLeaseTTL)
			const ttl = 6 * time.Second
			c := running(ctx, harness.Options{LeaseTTL: ttl})
			before, err := c.EtcdLeases(ctx)
			Expect(err).NotTo(HaveOccurred())
			agent, err := c.Agent("node01")
			Expect(err).NotTo(HaveOccurred())
			suite.Inject(ctx, c, fault.EtcdPause{})
			suite.Step(c, "a renewal fails")
			Eventually(ctx, func() []string { return agent.Tail(20) }).WithPolling(10 * time.Millisecond).
				WithTimeout(ttl).Should(ContainElement(ContainSubstring("cannot renew the lease")))
			suite.Heal(ctx, c)
			Eventually(ctx, func() ([]harness.Lease, error) { return c.Leases(ctx) }).
				Should(haveTime(len(c.Nodes()), ttl/2), "the leases are not renewed")
			Consistently(ctx, func() ([]harness.Lease, error) { return c.Leases(ctx) }).
				WithTimeout(ttl+ttl/2).WithPolling(100*time.Millisecond).
				Should(haveTime(len(c.Nodes()), time.Second), "the leases are not renewed")
			Expect(c.EtcdLeases(ctx)).To(ConsistOf(before), "a lease was lost and granted anew")
			Expect(agent.Running()).To(BeTrue())
			expectNothingLost(ctx, c)
		},
		SpecTimeout(time.Minute),
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
			c := chaos.Cluster(ctx, harness.Options{
				Agent: ours(), Nodes: nodes, Idle: idle, Network: prefix("172.16.0.0/19"), PodsPerNode: -1,
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
			suite.Inject(ctx, c, fault.EtcdPause{})
			stillRun("node03", "node17") // no race is lost while etcd is paused
			suite.Inject(ctx, c, fault.AgentKill{Node: "node03"}, fault.AgentKill{Node: "node17"})
			_, err := c.HealOne(ctx, fault.EtcdPause{}) // the killed ones wait for it
			Expect(err).NotTo(HaveOccurred())
			suite.Heal(ctx, c)
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
				m, err := c.Machine(n)
				Expect(err).NotTo(HaveOccurred())
				Expect(fdbOf(c, m)).To(HaveLen(nodes-1), "forwarding entries of %s", n)
			}
		}, SpecTimeout(time.Minute))

	// A node that is merely late should find its subnet free (terraform-kubernetes-installer#5). Right:
	// subnets that nobody has owned are given away first.
	It("that has expired is the last to be given away", suite.Red("no-owner-records"), func(ctx SpecContext) {
		needs(driver.FeatureEtcdV3)
		c := running(ctx, harness.Options{
			Network: prefix("172.16.0.0/21"), Nodes: 7, Idle: []string{"node05", "node06", "node07"},
			LeaseTTL: 2 * time.Second,
		})
		subnet, err := c.SubnetOf("node04")
		Expect(err).NotTo(HaveOccurred())
		suite.Inject(ctx, c, fault.AgentPause{Node: "node04"})
		expire(ctx, c, "node04")
		suite.Step(c, "others join, for whom there are subnets that nobody has owned")
		for _, n := range []string{"node05", "node06", "node07"} {
			Expect(c.StartAgent(ctx, n)).To(Succeed())
		}
		Expect(subnets(c, "node05", "node06", "node07")).NotTo(ContainElement(subnet))
		talkFor(ctx, c, 10)
		suite.Heal(ctx, c)
		Eventually(ctx, func() (string, error) { return c.LeaseOf(ctx, "node04") }).WithTimeout(5 * time.Second).
			Should(Equal(subnet))
		report, err := c.Mesh().Settle(ctx)
		Expect(err).NotTo(HaveOccurred())
		lost, _ := report.Lost(func(probe.PairReport) bool { return true })
		Expect(lost).To(BeZero(), "peers of the node whose lease had expired")
	}, SpecTimeout(time.Minute))
})
