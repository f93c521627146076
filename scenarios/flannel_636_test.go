package scenarios

// flannel#636. Reported in 2017 on four virtual machines: etcd was stopped and the agent on one node was
// killed. Pods of that node and pods of the others could not reach each other any more, in either direction,
// while a node itself still reached a pod on the broken node. The agent had been answering the kernel's
// questions for the MAC behind each pod address by hand, with entries that age.
//
// Right: nothing is lost. Every neighbour and forwarding entry is permanent, and nobody has to be there to
// answer (flannel v0.9 and later, and this overlay).

import (
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/suite"
)

// controlPlaneLost is what the reporter did: etcd stopped, the agent on node04 killed, and time passed.
var controlPlaneLost = []suite.Fault{
	suite.EtcdStop{},
	suite.AgentKill{Node: "node04"},
	suite.AgeNeighbours{Nodes: []string{"node01", "node02", "node03", "node04"}},
}

var _ = Describe(
	"flannel-636",
	Label("issue:flannel-636", "kind:control-plane"),
	suite.Breaks("etcd-stop"),
	func() {
		It("loses nothing on our overlay while etcd and an agent are away", func(ctx SpecContext) {
			c := chaos.Cluster(ctx, suite.Options{})
			c.NeedsDevice() // without one there are no neighbours of pods that could age
			silent := c.AddPods(ctx, "silent")
			c.StartMesh(ctx)
			c.TalkFor(ctx, 25)
			c.Inject(ctx, controlPlaneLost...)

			c.Step("the mesh goes on for longer than entries take to age")
			c.TalkFor(ctx, 200)
			for _, name := range c.Nodes() {
				c.ExpectPermanent(ctx, name)
			}
			c.Step("a pod is made on every node during the outage")
			fresh := c.AddPods(ctx, "fresh")
			c.ExpectReach(ctx, suite.Each(fresh, c.Pods(), true)...)
			c.Step("pairs that were silent until now are asked")
			c.ExpectReach(ctx, suite.Each(silent, c.Pods(), true)...)

			// etcd comes back first: an agent that cannot start without it is another report's matter.
			c.HealOne(ctx, suite.EtcdStop{})
			c.Heal(ctx)
			c.TalkFor(ctx, 25)
			c.ExpectNothingLost(ctx)
		}, suite.Long, suite.Red("on-demand-neighbours"), SpecTimeout(2*time.Minute))

		Describe(
			"with neighbours resolved on demand",
			Ordered,
			ContinueOnFailure,
			Label("defect:on-demand-neighbours", "detect:exempt"),
			func() {
				var (
					c              *suite.Cluster
					neighbours     *suite.NeighbourWatch
					arp            *suite.ARPWatch
					near, far      *suite.Pod // on node01 and on node04, talking all the time
					lost           time.Time
					during         suite.Report
					unmet, unmet04 *suite.Pod
				)

				BeforeAll(func(ctx SpecContext) {
					c = chaos.Cluster(ctx, suite.Options{Agent: suite.WithDefect("on-demand-neighbours")})
					const why = "the defect has one route for the whole network, and no neighbour that lasts"
					c.Waive("kernel-holds-what-is-explained", why)
					c.Waive("agent-makes-progress", why)
					near, far = c.PodsOn("node01")[0], c.PodsOn("node04")[0]
					var err error
					unmet, err = c.AddPod(ctx, "node01", "unmet")
					Expect(err).NotTo(HaveOccurred())
					unmet04, err = c.AddPod(ctx, "node04", "unmet04")
					Expect(err).NotTo(HaveOccurred())
					c.StartMesh(ctx, firstPods(c)...)
					node04, err := c.Node("node04")
					Expect(err).NotTo(HaveOccurred())
					// When neighbours fail, each packet that waited for one is answered with an ICMP error, and many waited
					// for each. The kernel limits these by whom it tells, and all of them to bursts of 50
					// (net/ipv4/icmp.c); a receiver has no room for hundreds. The last neighbour to fail would go untold:
					// few wait, no limit.
					Expect(node04.Sysctl("net.ipv4.icmp_ratemask", "0")).To(Succeed())
					Expect(node04.Sysctl("net.ipv4.neigh."+suite.SysctlName(c.Device())+".unres_qlen", "3")).To(Succeed())
					neighbours, arp = c.WatchNeighbours("node04"), c.WatchARP("node04")
					c.TalkFor(ctx, 25)
					c.Inject(ctx, controlPlaneLost...)
					lost = time.Now()
					c.Step("pods of node01 and node04 lose each other")
					Eventually(ctx, func(g Gomega) {
						during = c.Mesh().Report()
						for _, way := range [][2]*suite.Pod{{near, far}, {far, near}} {
							p, err := during.Pair(way[0].Name, way[1].Name)
							g.Expect(err).NotTo(HaveOccurred())
							_, recovered := p.Recovery(lost)
							g.Expect(recovered).To(BeFalse())
						}
					}).WithTimeout(20 * time.Second).Should(Succeed())
				}, NodeTimeout(2*time.Minute))

				It(
					"keeps node01 → pod on node04 alive, because node01's VTEP address answers ARP",
					func(ctx SpecContext) {
						c.TalkFor(ctx, 50)
						p, err := c.Mesh().Report().Pair("node01", far.Name)
						Expect(err).NotTo(HaveOccurred())
						Expect(p.Sent).To(BeNumerically(">", 100))
						Expect(p.Lost).To(BeZero(), "host → pod lost packets as well")
					},
				)

				It("cuts pods of node01 and node04 off from each other, both ways", func(ctx SpecContext) {
					c.ExpectReach(ctx, suite.Each([]*suite.Pod{near}, []*suite.Pod{far}, false)...)
				})

				It("leaves the pairs that node04 has no part in alone", func() {
					gone, sent := c.Mesh().Report().Lost(func(p suite.PairReport) bool { return !p.On("node04") })
					Expect(sent).To(BeNumerically(">", 1000))
					Expect(gone).To(BeZero())
				})

				It("takes node04's neighbour entry through STALE and PROBE to failure", func() {
					states := neighbours.States(near.Addr(), lost.Add(-5*time.Second))
					Expect(states).To(ContainElements("STALE", "PROBE"))
					Expect(states).To(ContainElement(BeElementOf("FAILED", "INCOMPLETE")))
					Expect(states).NotTo(ContainElement("PERMANENT"))
				})

				It("asks for the pod on flannel.1 and nobody answers", func(ctx SpecContext) {
					Eventually(ctx, func() int {
						requests, _ := arp.Asked(near.Addr(), lost)
						return requests
					}).WithTimeout(5*time.Second).Should(BeNumerically(">=", 3), "ARP requests for "+near.Addr().String())
					_, replies := arp.Asked(near.Addr(), lost)
					Expect(replies).To(BeZero())
				})

				It("has node04's cni0 tell its own pod: host unreachable", func(ctx SpecContext) {
					gateway := gatewayOf(far)
					Eventually(
						ctx,
						func() []suite.ICMPError { return c.Mesh().Report().Errors },
					).WithTimeout(5 * time.Second).
						Should(ContainElement(And(
							HaveField("At", far.Name), HaveField("Reporter", gateway),
							HaveField("Type", 3), HaveField("Code", 1),
							HaveField("Source", far.Addr()), HaveField("Destination", near.Addr()))))
					for _, e := range c.Mesh().Report().Errors {
						Expect(e.At).NotTo(Equal(near.Name), "the pinging pod on node01 should see silence only")
					}
				})

				It("cuts off a pod that node04 never talked to", func(ctx SpecContext) {
					c.ExpectReach(ctx, suite.Each([]*suite.Pod{unmet}, []*suite.Pod{unmet04}, false)...)
					// Until the kernel has given up, it asks once a second and three times in all. An agent that is back
					// after the third would not be asked.
					Eventually(ctx, func() []string { return neighbours.States(unmet.Addr(), lost) }).
						WithTimeout(5 * time.Second).Should(ContainElement("FAILED"))
				})

				It("heals within 5 s when etcd and the agent are back", func(ctx SpecContext) {
					healed := c.Heal(ctx)
					Eventually(ctx, func(g Gomega) {
						d, ok := c.Mesh().Report().Recovery(healed)
						g.Expect(ok).To(BeTrue())
						g.Expect(d).To(BeNumerically("<", 5*time.Second))
					}).WithTimeout(10 * time.Second).Should(Succeed())
					c.ExpectReach(ctx, suite.Each([]*suite.Pod{unmet}, []*suite.Pod{unmet04}, true)...)
				}, SpecTimeout(30*time.Second))
			},
		)
	},
)

// gatewayOf returns the address of cni0 on the pod's node: the first of the pod's subnet.
func gatewayOf(p *suite.Pod) netip.Addr { return p.Addrs[0].Masked().Addr().Next() }
