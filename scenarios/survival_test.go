package scenarios

// What an overlay owes its pods while its control plane comes and goes: each is reported of flannel
// somewhere, and each is a row of the promises in overlay/README.md. A mesh goes on through every one of
// them.

import (
	"context"
	"fmt"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/suite"
)

// subnets lists the subnet file's subnet of every node.
func subnets(c *suite.Cluster, nodes ...string) []string {
	GinkgoHelper()
	if len(nodes) == 0 {
		nodes = c.Nodes()
	}
	var all []string
	for _, n := range nodes {
		s, err := c.SubnetOf(n)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, s)
	}
	return all
}

// leasesOf lists the lease of every node.
func leasesOf(ctx context.Context, c *suite.Cluster, nodes ...string) []string {
	if len(nodes) == 0 {
		nodes = c.Nodes()
	}
	var all []string
	for _, n := range nodes {
		l, err := c.LeaseOf(ctx, n)
		if err != nil {
			return []string{err.Error()}
		}
		all = append(all, l)
	}
	return all
}

var _ = Describe("agent", Label("kind:survival"), func() {
	// flannel#1002, PR#628. Reported: stopping or restarting the agent removed its device or rules for a
	// moment, and connections of pods broke. Right: a restart is invisible to pods.
	DescribeTable(
		"loses nothing while it is away and back",
		Label("issue:flannel-1002"),
		suite.Red("on-demand-neighbours"),
		func(ctx SpecContext, away func(ctx context.Context, c *suite.Cluster)) {
			c := chaos.Running(ctx, suite.Options{})
			before, rules := c.DeviceIdentity("node02"), c.RuleHandles("node02")
			away(ctx, c)
			c.TalkFor(ctx, 25)
			c.ExpectFreshPods(ctx, "meanwhile")
			c.Heal(ctx)
			c.TalkFor(ctx, 25)
			c.ExpectFreshPods(ctx, "fresh")
			Expect(c.DeviceIdentity("node02")).To(Equal(before), "the device was changed")
			Expect(c.RuleHandles("node02")).To(Equal(rules), "the rules were written again")
			c.ExpectNothingLost(ctx)
		},
		Entry(
			"killed",
			SpecTimeout(2*time.Minute),
			suite.Red("new-device-at-start"),
			func(ctx context.Context, c *suite.Cluster) {
				c.Inject(ctx, suite.AgentKill{Node: "node02"})
			},
		),
		Entry(
			"stopped",
			SpecTimeout(2*time.Minute),
			suite.Red("new-device-at-start"),
			func(ctx context.Context, c *suite.Cluster) {
				c.Inject(ctx, suite.AgentStop{Node: "node02"})
			},
		),
		Entry("paused", SpecTimeout(2*time.Minute), func(ctx context.Context, c *suite.Cluster) {
			c.Inject(ctx, suite.AgentPause{Node: "node02"})
		}),
		Entry("restarted ten times", SpecTimeout(2*time.Minute), suite.Red("new-device-at-start"),
			func(ctx context.Context, c *suite.Cluster) {
				for range 10 {
					c.Inject(ctx, suite.AgentStop{Node: "node02"})
					c.Heal(ctx)
				}
				if suite.Has(suite.FeatureEtcdV3) {
					Eventually(ctx, c.EtcdLeases).
						Should(HaveLen(len(c.Nodes())), "restarts left etcd leases behind")
				}
			}),
	)

	// flannel#294, #610. Reported: an agent that was restarted while etcd was away waited for etcd, and
	// its node could set up no pods. Right: it starts as it was saved.
	It(
		"starts from its saved state while etcd is away",
		suite.Breaks("etcd-stop"),
		suite.Long, suite.Red("no-saved-state"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			before, device := subnets(c), c.DeviceIdentity("node02")
			c.Inject(ctx, suite.EtcdStop{}, suite.AgentKill{Node: "node02"},
				suite.FileDeleted{Node: "node02", Path: c.SubnetFile()})
			c.Step("the agent is started without etcd")
			Expect(c.StartAgent(ctx, "node02")).To(Succeed())
			Expect(subnets(c)).To(Equal(before))
			Expect(c.DeviceIdentity("node02")).To(Equal(device))
			c.ExpectFreshPods(ctx, "fresh")
			c.HealOne(ctx, suite.EtcdStop{})
			Eventually(
				ctx,
				func() []string { return leasesOf(ctx, c) },
			).WithTimeout(10 * time.Second).
				Should(Equal(before))
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#1474, #520. Reported: a rebooted node took another subnet or MAC, and peers sent to the old
	// one. Right: the same, with etcd or without.
	It(
		"comes back after a reboot with the same subnet and VTEP MAC, etcd away or not",
		Label("issue:flannel-1474"), suite.Breaks("node-reboot"),
		suite.Red("no-saved-state", "new-device-at-start"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			before, mac := subnets(c), c.MAC("node03")
			c.Inject(ctx, suite.EtcdStop{})
			c.Step("node03 is rebooted while etcd is away")
			Expect(c.Reboot(ctx, "node03")).To(Succeed())
			Expect(c.StartAgent(ctx, "node03")).To(Succeed())
			Expect(subnets(c)).To(Equal(before))
			Expect(c.MAC("node03")).To(Equal(mac))
			c.ExpectFreshPods(ctx, "without-etcd")
			c.Heal(ctx)
			c.Step("node03 is rebooted again")
			Expect(c.Reboot(ctx, "node03")).To(Succeed())
			Expect(c.StartAgent(ctx, "node03")).To(Succeed())
			Eventually(ctx, func() []string { return leasesOf(ctx, c) }).WithTimeout(10 * time.Second).
				Should(Equal(before))
			Expect(c.MAC("node03")).To(Equal(mac))
			c.Step("the container runtime on node03 frees what pods of before the reboot had")
			Expect(c.CollectGarbage(ctx, "node03")).To(Succeed())
			c.ExpectFreshPods(ctx, "with-etcd")
			c.ExpectNothingLostBut(ctx, "node03")
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#2135, #668. Reported: an agent hung or panicked when it was told to end, most of all while
	// etcd was away. Right: it ends within seconds, as a success.
	It(
		"ends within 5 s of SIGTERM, twenty times, etcd away or not",
		suite.Long, Label("issue:flannel-2135"),
		suite.Red("panic-at-exit"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			for i := range 20 {
				if i == 10 {
					c.Inject(ctx, suite.EtcdStop{})
				}
				c.Inject(ctx, suite.AgentStop{Node: "node02"})
				if i == 10 && !suite.Has(suite.FeatureState) {
					// It would not start before etcd does, so it is ended once in the outage.
					c.HealOne(ctx, suite.EtcdStop{})
				}
				c.HealOne(ctx, suite.AgentStop{Node: "node02"})
			}
			agent, err := c.Agent("node02")
			Expect(err).NotTo(HaveOccurred())
			Expect(agent.Tail(200)).NotTo(ContainElement(ContainSubstring("panic")))
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#51, #98. Reported: two nodes with the same public address shared one lease, and each took
	// the other's packets. Right: the second is refused, and names the first.
	It("refuses a public address that is another node's, and leaves that one alone",
		Label("issue:flannel-51", "kind:lease"), suite.Red("no-owner-records"), func(ctx SpecContext) {
			suite.Needs(suite.FeaturePublicIP)
			c := chaos.Running(ctx, suite.Options{Nodes: 5, Idle: []string{"node05"}})
			before := leasesOf(ctx, c, "node01", "node02")
			agent, err := c.LaunchAgent(ctx, "node05", "--public-ip=192.168.200.201")
			Expect(err).NotTo(HaveOccurred())
			if suite.IsOurs() {
				Eventually(ctx, func() []string { return agent.Tail(20) }).WithTimeout(10 * time.Second).
					Should(ContainElement(And(ContainSubstring("belongs to node"), ContainSubstring("node01"))))
			}
			c.TalkFor(ctx, 100) // another's agent has words of its own, so it is given time to do harm
			Expect(leasesOf(ctx, c, "node01", "node02")).To(Equal(before))
			Expect(agent.Signal(syscall.SIGTERM)).To(Succeed())
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))
})

var _ = Describe("etcd", Label("kind:survival"), func() {
	// flannel#610. Reported: etcd came back empty, and nodes took other subnets under their pods. Right:
	// each registers the one it has, without a restart.
	It(
		"emptied, has every node register the subnet it had",
		Label("issue:flannel-610"), suite.Breaks("etcd-wipe"),
		suite.Red("rewind-unnoticed"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{})
			before := subnets(c)
			c.Inject(ctx, suite.EtcdWipe{})
			c.TalkFor(ctx, 25)
			c.Heal(ctx)
			Eventually(ctx, func() []string { return leasesOf(ctx, c) }).WithTimeout(10*time.Second).
				Should(Equal(before), "the leases of before are not registered again")
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#1474. Reported: etcd was restored from a backup; its revision went back, and watches waited
	// for one that was years away. Right: noticed, listed again, and nobody is forgotten.
	It(
		"restored from an older snapshot, is followed again",
		Label("issue:flannel-1474"), suite.Breaks("etcd-restore"),
		suite.Long, suite.Red("rewind-unnoticed", "rewind-forgets-peers"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{Nodes: 5, Idle: []string{"node04", "node05"}})
			copied, err := c.Etcd().Save(ctx)
			Expect(err).NotTo(HaveOccurred())
			c.Step("node04 joins after the snapshot was taken")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			before := subnets(c, "node01", "node02", "node03", "node04")
			c.AddPods(ctx, "late", "node04")
			c.StartMesh(ctx)
			c.Step("node04's agent is too slow to register again at once")
			c.Inject(ctx, suite.AgentPause{Node: "node04"}, suite.EtcdRestored{Copy: copied})
			Eventually(ctx, func() []string {
				return leasesOf(ctx, c, "node01", "node02", "node03")
			}).WithTimeout(10 * time.Second).Should(Equal(before[:3]))
			c.TalkFor(ctx, 25)
			c.HealOne(ctx, suite.AgentPause{Node: "node04"})
			Eventually(ctx, func() []string {
				return leasesOf(ctx, c, "node01", "node02", "node03", "node04")
			}).WithTimeout(10*time.Second).Should(Equal(before), "the leases of before are not registered again")
			c.Step("node05 joins")
			Expect(c.StartAgent(ctx, "node05")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#2470, #2471. Reported: a watch was interrupted and history was compacted meanwhile; the
	// agent filled its log and never learned of new nodes again. Right: it lists again. The watch is sure to
	// have met the compaction: its connection was reset, and what it could have seen before that is behind.
	It(
		"compacted while a node was cut off, is listed again",
		Label("issue:flannel-2470"), suite.Breaks("etcd-compact", "etcd-reset"),
		suite.Red("watch-not-relisted"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{Nodes: 4, Idle: []string{"node04"}})
			c.Inject(ctx, suite.EtcdReset{Node: "node01"})
			seen, err := suite.Revision(ctx, c)
			Expect(err).NotTo(HaveOccurred())
			c.Step("node04 joins, and node01 cannot hear of it")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			c.Inject(ctx, suite.EtcdCompacted{Since: seen})
			c.Heal(ctx)
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#1830, #2171. Reported: while etcd was away agents used a whole processor, or filled their
	// logs. Right: they wait.
	It(
		"silent for 10 s, leaves agents idle and quiet",
		suite.Long, Label("issue:flannel-1830"), suite.Breaks("etcd-stop"),
		suite.Red("busy-without-etcd"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			c.Inject(ctx, suite.EtcdStop{})
			agent, err := c.Agent("node01")
			Expect(err).NotTo(HaveOccurred())
			cpu, lines := agent.CPU(), len(agent.Tail(200))
			c.TalkFor(ctx, 500)
			used := (agent.CPU() - cpu).Seconds()
			c.Figure("CPU of an agent in 10 s without etcd", used, "s")
			Expect(used).To(BeNumerically("<", 0.5), "5 %% of a core")
			Expect(len(agent.Tail(200))-lines).To(BeNumerically("<", 5), "lines of log")
			c.Heal(ctx)
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)

	// flannel#610, #1343. Reported: a lease was revoked or its key deleted by hand, and the agent ended,
	// moved, or never noticed. Right: it is granted anew, the same subnet.
	DescribeTable(
		"takes a lease away, and the node has it again and loses nothing",
		suite.Red("exit-on-revoked"),
		func(ctx SpecContext, lost suite.Fault) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{LeaseTTL: 3 * time.Second})
			before := subnets(c)
			c.Inject(ctx, lost)
			Eventually(ctx, func() []string { return leasesOf(ctx, c) }).WithTimeout(10 * time.Second).
				Should(Equal(before))
			c.TalkFor(ctx, 25)
			Expect(subnets(c)).To(Equal(before))
			c.ExpectNothingLost(ctx)
		},
		Entry("revoked", SpecTimeout(2*time.Minute), suite.LeaseRevoked{Node: "node02"}),
		Entry("deleted", SpecTimeout(2*time.Minute), suite.LeaseDeleted{Node: "node02"}),
		Entry("overwritten", SpecTimeout(2*time.Minute), suite.LeaseOverwritten{Node: "node02"}),
	)

	// flannel PR#1368, #126. Reported: one key that was no lease made an agent drop all its peers, or
	// crash. Right: ignored and named; everything else goes on.
	It(
		"full of nonsense, has it ignored and named",
		Label("issue:flannel-1368"),
		suite.Red("garbage-is-empty"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{Nodes: 4, Idle: []string{"node04"}})
			taken, err := c.SubnetOf("node02")
			Expect(err).NotTo(HaveOccurred())
			lease := func(ip, mac string, vni int) string {
				return fmt.Sprintf(`{"PublicIP":%q,"PublicIPv6":null,"BackendType":"vxlan",`+
					`"BackendData":{"VNI":%d,"VtepMAC":%q}}`, ip, vni, mac)
			}
			good := "02:00:00:00:00:77"
			c.Inject(ctx, suite.KeysPut{What: "nonsense", Keys: map[string]string{
				"subnets/hello":                          "world",
				"subnets/172.16.200.0-24":                "",
				"subnets/172.16.201.0-24":                `{"PublicIP":"192.168`,
				"subnets/172.16.202.0-24":                `{"PublicIP":"192.168.200.77","BackendType":"udp"}`,
				"subnets/172.16.203.0-24":                lease("192.168.200.77", good, 9),
				"subnets/172.16.204.0-24":                lease("192.168.200.77", "01:00:5e:00:00:01", 1),
				"subnets/10.77.0.0-24":                   lease("192.168.200.77", good, 1),
				"subnets/172.16.205.0-24":                lease("192.168.200.201", good, 1),
				"subnets/172.16.0.0-16":                  lease("192.168.200.77", good, 1),
				"subnets/" + taken[:len(taken)-2] + "25": lease("192.168.200.78", good, 1),
			}})
			c.Step("node04 joins")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			Expect(fdbOf(c, "node03")).NotTo(ContainElement(HaveField("IP.String()", HavePrefix("192.168.200.7"))))
			c.TalkFor(ctx, 25)
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)
})

var _ = Describe("lease", Label("kind:lease"), func() {
	// A node that is taken out of service need not be kept by its peers until its lease ends. Right: they
	// drop it at once, on its word alone.
	It(
		"is given back by --leave, and peers drop it at once",
		suite.Red("exit-when-exhausted"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureLeave)
			c := chaos.Running(
				ctx,
				suite.Options{Network: prefix("172.16.0.0/22"), Nodes: 4, Idle: []string{"node04"}},
			)
			c.Step("node04 finds every subnet leased, and waits")
			waiting, err := c.LaunchAgent(ctx, "node04")
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func() []string { return waiting.Tail(20) }).WithTimeout(10 * time.Second).
				Should(ContainElement(ContainSubstring("no free subnet")))
			Consistently(waiting.Running).WithTimeout(500*time.Millisecond).
				Should(BeTrue(), "the agent that waits for a subnet has ended")

			left, err := c.SubnetOf("node03")
			Expect(err).NotTo(HaveOccurred())
			c.Step("node03 leaves for good, so no heal may start its agent again")
			gone, err := c.Agent("node03")
			Expect(err).NotTo(HaveOccurred())
			Expect(gone.Terminate(ctx, 5*time.Second)).To(Succeed())
			leave, err := c.RunAgent(ctx, "node03", "--leave")
			Expect(err).NotTo(HaveOccurred())
			Expect(leave.ExitErr()).NotTo(HaveOccurred(), "%v", leave.Tail(10))
			c.Step("node04 takes what is free now")
			Eventually(ctx, func() (string, error) { return c.LeaseOf(ctx, "node04") }).
				WithTimeout(10 * time.Second).Should(Equal(left))
			Eventually(ctx, func() error { return c.KnowsOnly("node01", "node02", "node04") }).
				WithTimeout(5 * time.Second).Should(Succeed())
			c.ExpectNothingLostBut(ctx, "node03")
		},
		SpecTimeout(2*time.Minute),
	)

	// A plain flannel has leases only, without owner records. Right: it is a peer while its lease lives,
	// garbage in its place is no end of it, and its end is taken as one.
	It(
		"of a plain flannel peer is followed, and its end too",
		suite.Red("peers-never-dropped"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureEtcdV3)
			c := chaos.Running(ctx, suite.Options{})
			lease := func(host int) string {
				return fmt.Sprintf(`{"PublicIP":"192.168.200.%d","PublicIPv6":null,"BackendType":"vxlan",`+
					`"BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:%02x"}}`, host, host)
			}
			const key, other = "subnets/172.16.250.0-24", "subnets/172.16.251.0-24"
			c.Inject(ctx, suite.KeysPut{
				What: "a flannel peer's lease", Keys: map[string]string{key: lease(250)},
			})
			theirs, others := HaveField("MAC", "02:00:00:00:00:fa"), HaveField("MAC", "02:00:00:00:00:fb")
			Eventually(ctx, func() any { return fdbOf(c, "node01") }).Should(ContainElement(theirs))
			c.Inject(ctx, suite.KeysPut{
				What: "garbage in its place, and another's lease",
				Keys: map[string]string{key: "garbage", other: lease(251)},
			})
			Eventually(ctx, func() any { return fdbOf(c, "node01") }).Should(ContainElement(others))
			Expect(fdbOf(c, "node01")).To(ContainElement(theirs), "the peer whose key was overwritten")
			c.Heal(ctx)
			Eventually(ctx, func() any { return fdbOf(c, "node01") }).ShouldNot(ContainElement(theirs))
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)
})
