package scenarios

// etcd is there and does not do what it should: members are lost, writes are refused, a certificate is no
// good, a connection goes silent. Right: the data plane is kept, what fails is tried again, and nothing has
// to be restarted (flannel#1240, #904, #829, #1133; microk8s#2297).

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/suite"
)

// keepsWorking breaks etcd for longer than a lease lives, heals it, and has a node join.
func keepsWorking(ctx context.Context, c *suite.Cluster, broken suite.Fault) {
	GinkgoHelper()
	before := subnets(c, "node01", "node02", "node03")
	pids := map[string]int{}
	for _, n := range []string{"node01", "node02", "node03"} {
		agent, err := c.Agent(n)
		Expect(err).NotTo(HaveOccurred())
		pids[n] = agent.Pid()
	}
	c.Inject(ctx, broken)
	c.TalkFor(ctx, 150)
	c.Heal(ctx)
	// Ended leases are listed until etcd looks for them, which is every half second (lease/lessor.go, runLoop).
	Eventually(ctx, func() ([]suite.Lease, error) { return c.Leases(ctx) }).WithTimeout(10*time.Second).
		Should(haveTime(len(before), time.Second), "the leases are not renewed")
	Eventually(ctx, func() []string { return leasesOf(ctx, c, "node01", "node02", "node03") }).
		WithTimeout(10*time.Second).Should(Equal(before), "the leases are not renewed")
	c.Step("node04 joins")
	Expect(c.StartAgent(ctx, "node04")).To(Succeed())
	Expect(c.WaitConverged(ctx)).To(Succeed())
	for n, pid := range pids {
		agent, err := c.Agent(n)
		Expect(err).NotTo(HaveOccurred())
		Expect(agent.Running()).To(BeTrue(), "the agent on %s has ended", n)
		Expect(agent.Pid()).To(Equal(pid), "the agent on %s was restarted", n)
	}
	c.ExpectFreshPods(ctx, "fresh")
	c.ExpectNothingLost(ctx)
}

var _ = Describe("etcd", Label("kind:survival"), func() {
	// flannel#1240, #904, #1133; microk8s#2297. Reported: etcd refused writes for want of space, or
	// certificates had expired, and agents gave up their lease or ended. Right: the data plane stays, and
	// they go on trying.
	DescribeTable("that fails for longer than a lease lives costs no packet and no restart",
		suite.Long, suite.Red("renewal-gives-up"),
		func(ctx SpecContext, tls bool, broken suite.Fault) {
			if tls {
				suite.Needs(suite.FeatureLeaseTTL)
			}
			c := chaos.Running(ctx, suite.Options{
				Nodes: 4, Idle: []string{"node04"}, LeaseTTL: 2 * time.Second, EtcdTLS: tls,
			})
			keepsWorking(ctx, c, broken)
		},
		Entry("by refusing writes for want of space", SpecTimeout(2*time.Minute),
			Label("issue:flannel-1240"), suite.Breaks("etcd-no-space"), false, suite.EtcdNoSpace{}),
		Entry(
			"by refusing the agents' writes",
			SpecTimeout(2*time.Minute),
			Label("issue:microk8s-2297"), suite.Breaks("etcd-write-removed"),
			true,
			suite.EtcdPermissionRemoved{KeepRead: true},
		),
		Entry("by refusing the agents altogether", SpecTimeout(2*time.Minute),
			Label("issue:flannel-904"), suite.Breaks("etcd-permission-removed"), true, suite.EtcdPermissionRemoved{}),
		Entry("by an expired certificate", SpecTimeout(2*time.Minute),
			Label("issue:flannel-1133"), suite.Breaks("etcd-cert-expired"), true, suite.EtcdCertExpired{}),
		Entry("by a certificate of an authority nobody trusts", SpecTimeout(2*time.Minute),
			Label("issue:flannel-1133"), suite.Breaks("etcd-cert-replaced"), true, suite.EtcdCertReplaced{}),
	)

	// flannel#829, #432. Reported: certificates were renewed on disk, and agents used the old ones until
	// they were restarted. Right: the new one is used at the next connection.
	It("takes an agent back whose certificate was renewed on disk, without a restart",
		Label("issue:flannel-829"), suite.Breaks("client-cert-expired"), suite.Red("certificates-once"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{LeaseTTL: 2 * time.Second, EtcdTLS: true})
			before := subnets(c)
			c.Inject(ctx, suite.ClientCertExpired{Node: "node02"})
			c.Step("the agent on node02 is restarted, and finds the expired certificate")
			agent, err := c.Agent("node02")
			Expect(err).NotTo(HaveOccurred())
			Expect(agent.Terminate(ctx, 5*time.Second)).To(Succeed())
			Expect(c.StartAgent(ctx, "node02")).To(Succeed())
			agent, err = c.Agent("node02")
			Expect(err).NotTo(HaveOccurred())
			c.Inject(ctx, suite.LeaseExpire{Node: "node02", Within: 10 * time.Second})
			c.Heal(ctx)
			Eventually(ctx, func() []string { return leasesOf(ctx, c) }).WithTimeout(10 * time.Second).
				Should(Equal(before))
			again, err := c.Agent("node02")
			Expect(err).NotTo(HaveOccurred())
			Expect(again.Pid()).To(Equal(agent.Pid()), "the agent was restarted")
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))

	// flannel#1633, #390. Reported: an agent stayed with the one member that it had first, which was gone.
	// Right: any member that lives will do.
	It(
		"of three members loses its leader, then its quorum",
		suite.Long, suite.Breaks("etcd-member-loss", "etcd-quorum-loss"),
		suite.Red("first-endpoint-only"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{
				Nodes: 5, Idle: []string{"node04", "node05"}, EtcdMembers: 3, LeaseTTL: 2 * time.Second,
			})
			three := []string{"node01", "node02", "node03"}
			before := subnets(c, three...)
			leader, err := c.Etcd().Leader(ctx)
			Expect(err).NotTo(HaveOccurred())
			if leader != c.Etcd().Members()[0] { // the leader that is lost is to be the agents' first endpoint
				c.Inject(ctx, suite.EtcdLeaderMoved{})
			}
			c.Inject(ctx, suite.EtcdMemberLost{})
			c.Step("node04 joins, with two members")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.Heal(ctx)
			c.Inject(ctx, suite.EtcdQuorumLost{})
			c.TalkFor(ctx, 150)
			c.Step("pods are made while etcd has no quorum")
			c.ExpectFreshPods(ctx, "no-quorum")
			c.Heal(ctx)
			Eventually(ctx, func() []string { return leasesOf(ctx, c, three...) }).WithTimeout(10 * time.Second).
				Should(Equal(before))
			c.Step("node05 joins")
			Expect(c.StartAgent(ctx, "node05")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#1633. Reported: a connection was swallowed without an error, and the agent waited on it for
	// minutes. Right: noticed, and another is made.
	It("whose connection to a node goes silent is noticed, and another joins", suite.Breaks("etcd-black-hole"),
		suite.Red("watch-not-relisted"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{Nodes: 4, Idle: []string{"node04"}})
			c.Inject(ctx, suite.EtcdBlackHole{Node: "node01"})
			agent, err := c.Agent("node01")
			Expect(err).NotTo(HaveOccurred())
			at := time.Now()
			if suite.IsOurs() {
				Eventually(ctx, func() []string { return agent.Tail(20) }).WithTimeout(5 * time.Second).
					Should(ContainElement(ContainSubstring("etcd does not answer")))
				c.Figure("silence noticed after", time.Since(at).Seconds(), "s")
			}
			c.Step("node04 joins, and node01 cannot hear of it")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			c.Heal(ctx)
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))
})
