package suite_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/suite"
)

var chaos *suite.Suite // = suite.New()

// A suite is a package of tests with these three lines.
func Example_suite() {
	chaos = suite.New()
	_ = func(m *testing.M) { suite.Main(m) }           // TestMain
	_ = func(t *testing.T) { suite.Run(t, "mychaos") } // TestMyChaos
}

// A scenario builds a cluster, breaks it, and says what must hold.
func Example_scenario() {
	It("loses nothing while etcd is away", suite.Breaks("etcd-stop"), suite.Red("no-saved-state"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{Nodes: 3})
			c.Inject(ctx, suite.EtcdStop{}, suite.AgentKill{Node: "node02"})
			c.TalkFor(ctx, 50)
			c.HealOne(ctx, suite.EtcdStop{})
			at := c.Heal(ctx)
			c.ExpectRecovered(ctx, at, time.Second)
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(time.Minute))
}

// A cluster without a mesh, whose pods are made and asked one by one.
func Example_pods() {
	It("reaches pods that nobody has met", func(ctx SpecContext) {
		c := chaos.Cluster(ctx, suite.Options{Nodes: 2})
		c.Step("pods are made")
		pods := c.AddPods(ctx, "late", "node01", "node02")
		c.ExpectReach(ctx, suite.Each(pods, c.Pods(), true)...)
		c.StartMesh(ctx, pods...)
		report := c.Settled(ctx)
		Expect(report.Pairs).NotTo(BeEmpty())
		c.ExpectNothingLostBut(ctx, "node02")
		_ = suite.Over6(pods[0].Name) // its IPv6 address in the mesh
	})
}

// What only some agents have is asked for, or the scenario is skipped with one line.
func Example_needs() {
	It("knows leases", func(ctx SpecContext) {
		suite.Needs(suite.FeatureKeys)
		suite.NeedsProgram(suite.UnderTest())
		if suite.Has(suite.FeatureIPv6) && suite.IsOurs() {
			Skip("for agents of IPv4")
		}
		c := chaos.Cluster(ctx, suite.Options{Agent: suite.WithDefect("deaf")})
		c.Needs(suite.FeatureLeases, suite.FeatureSubnetFile)
		c.NeedsDevice()
		if c.Has(suite.FeatureLeaseTTL) {
			Expect(c.SwapAgent(ctx, "node01", suite.OwnBuild())).To(Succeed())
		}
		c.Waive("agent-alive", "the old agent has ended")
	})
}

// Leases, as the control plane and the agents have them.
func Example_leases() {
	It("moves when its subnet is given away", func(ctx SpecContext) {
		c := chaos.Running(ctx, suite.Options{})
		before, err := c.SubnetOf("node01")
		Expect(err).NotTo(HaveOccurred())
		Expect(c.LeaseOf(ctx, "node01")).To(Equal(before))
		Expect(c.Leases(ctx)).To(HaveLen(3))
		Expect(c.SubnetFile()).NotTo(BeEmpty())
		revision, err := suite.Revision(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Configure(ctx, `{"Network": "10.5.0.0/16"}`)).To(Succeed())
		Eventually(
			ctx,
			func() (int64, error) { return suite.Revision(ctx, c) },
		).Should(BeNumerically(">", revision))
		Expect(c.Retire(ctx, "node03")).To(Succeed())
		Eventually(ctx, func() error { return c.KnowsOnly("node01", "node02") }).Should(Succeed())
	})
}
