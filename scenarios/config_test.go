package scenarios

// The network configuration changes under a running overlay. Right: nothing happens until an agent is
// restarted, and then nothing of the old network is left (flannel#716, #813, #1604; MTU: #1011, #841,
// #1775).

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/suite"
)

// restartAll restarts every agent, one after another.
func restartAll(ctx context.Context, c *suite.Cluster) {
	GinkgoHelper()
	for _, n := range c.Nodes() {
		c.Inject(ctx, suite.AgentRestart{Node: n})
	}
	Expect(c.WaitConverged(ctx)).To(Succeed())
}

// dataPlanes lists what the overlay holds in every node's kernel.
func dataPlanes(c *suite.Cluster) map[string][]string {
	GinkgoHelper()
	all := map[string][]string{}
	for _, n := range c.Nodes() {
		lines, err := c.DataPlane(n)
		Expect(err).NotTo(HaveOccurred())
		all[n] = lines
	}
	return all
}

// overUplink lists a node's routes over its uplink whose destination begins like this.
func overUplink(c *suite.Cluster, name, begin string) []string {
	GinkgoHelper()
	s, err := c.KernelLines(name)
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(s.Routes, func(r string) bool {
		return !strings.HasPrefix(r, begin) || !strings.Contains(r, " dev "+suite.Uplink)
	})
}

// expectMTU waits until a node's device and subnet.env have an MTU, and states that the bridge and a pod
// that is made then have it too.
func expectMTU(ctx context.Context, c *suite.Cluster, name, podName string, mtu int) {
	GinkgoHelper()
	Eventually(ctx, func() int { return deviceMTU(c, name) }).Should(Equal(mtu), "the device of %s", name)
	m, err := c.Machine(name)
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() (string, error) {
		env, err := os.ReadFile(m.Path(c.SubnetFile()))
		return string(env), err
	}).Should(ContainSubstring("FLANNEL_MTU=%d\n", mtu), "subnet.env of %s", name)
	p, err := c.AddPod(ctx, name, podName)
	Expect(err).NotTo(HaveOccurred())
	Expect(linkMTU(p.NetNS, "eth0")).To(Equal(mtu), "pod on %s", name)
	Expect(linkMTU(m.NetNS(), suite.Bridge)).To(Equal(mtu), "bridge of %s", name)
}

var _ = Describe("network configuration", Label("kind:config"), func() {
	// flannel#716, #813, #1604. Reported: after another network was put into etcd and agents were
	// restarted, routes, rules and bridge of the old one stayed. Right: untouched until a restart, nothing
	// left of it after.
	It("that names another network is taken over at restart, and nothing of the old one is left",
		Label("issue:flannel-716"), suite.Red("no-clean-up-at-start"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			before := dataPlanes(c)
			waiveMoved(c)
			c.Step("the network configuration names another network")
			Expect(c.Configure(ctx,
				`{"Network":"172.20.0.0/16","SubnetLen":24,"Backend":{"Type":"vxlan","VNI":1,"Port":8472}}`)).
				To(Succeed())
			c.TalkFor(ctx, 50)
			Expect(dataPlanes(c)).To(Equal(before), "the data plane changed before any restart")
			c.ExpectNothingLost(ctx)

			restartAll(ctx, c)
			Eventually(ctx, func(g Gomega) {
				for n, lines := range dataPlanes(c) {
					g.Expect(lines).NotTo(ContainElement(ContainSubstring("172.16.")), n)
				}
			}).WithTimeout(5 * time.Second).Should(Succeed())
			Expect(subnets(c)).To(HaveEach(HavePrefix("172.20.")))
			c.Step("a pod is made on every node")
			fresh := c.AddPods(ctx, "fresh")
			c.ExpectReach(ctx, suite.Each(fresh, fresh, true)...)
		}, SpecTimeout(2*time.Minute))

	// flannel#1604, #716. Reported: after another network was put into etcd, routes of the old one over the
	// uplink stayed. Right: none is left, and nobody else's is touched.
	DescribeTable("that names another network leaves no route of the old one on the uplink",
		Label("issue:flannel-1604"), suite.Red("no-clean-up-at-start"),
		func(ctx SpecContext, from suite.Options, configs ...string) {
			c := chaos.Running(ctx, from)
			waiveMoved(c)
			for _, id := range []string{"kernel-holds-what-is-explained", "agent-makes-progress"} {
				c.Waive(id, "it looks for peers behind the VXLAN device")
			}
			theirs := "10.99.0.0/24 via 192.168.200.202 dev eth0"
			c.Inject(ctx, suite.Done{
				Node: "node01", What: "an administrator's route",
				Do: func(m *suite.Machine) error {
					return m.Netlink().RouteAdd(&netlink.Route{Gw: net.IPv4(192, 168, 200, 202), Dst: &net.IPNet{
						IP: net.IPv4(10, 99, 0, 0), Mask: net.CIDRMask(24, 32),
					}})
				},
			})
			for i, config := range configs {
				c.Step("the network configuration becomes " + config)
				Expect(c.Configure(ctx, config)).To(Succeed())
				for _, n := range c.Nodes() {
					c.Inject(ctx, suite.AgentRestart{Node: n})
				}
				// Before the last change there is one to each peer, so that there is something to be left.
				old := HaveLen(len(c.Nodes()) - 1)
				if i == len(configs)-1 {
					old = BeEmpty()
				}
				for _, n := range c.Nodes() {
					Eventually(ctx, func() []string { return overUplink(c, n, "172.16.") }).
						WithTimeout(10*time.Second).Should(old, n)
				}
			}
			for _, n := range c.Nodes() {
				Eventually(ctx, func() []string { return overUplink(c, n, "172.20.") }).
					WithTimeout(10*time.Second).Should(HaveLen(len(c.Nodes())-1), n)
			}
			Expect(overUplink(c, "node01", "10.99.")).To(ContainElement(HavePrefix(theirs)))
			fresh := c.AddPods(ctx, "fresh")
			c.ExpectReach(ctx, suite.Each(fresh, fresh, true)...)
		},
		Entry("of host-gw", SpecTimeout(2*time.Minute), suite.Options{Backend: suite.BackendHostGW},
			`{"Network":"172.16.0.0/16","SubnetLen":24,"Backend":{"Type":"host-gw"}}`,
			`{"Network":"172.20.0.0/16","SubnetLen":24,"Backend":{"Type":"host-gw"}}`),
		Entry("of direct routing", SpecTimeout(2*time.Minute), suite.Options{},
			`{"Network":"172.16.0.0/16","SubnetLen":24,"Backend":{"Type":"vxlan","DirectRouting":true}}`,
			`{"Network":"172.20.0.0/16","SubnetLen":24,"Backend":{"Type":"vxlan","DirectRouting":true}}`),
	)

	// flannel#1011. Reported: another MTU in the configuration did not reach the device that was there, or
	// pods and device did not agree on it. Right: all agree after the restart.
	It(
		"with another MTU reaches device, subnet.env, bridge and new pods at restart",
		Label("issue:flannel-1011"),
		suite.Red("keep-mtu"),
		func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			c.Inject(ctx, suite.ConfigChanged{
				Config: `{"Network":"172.16.0.0/16","SubnetLen":24,` +
					`"Backend":{"Type":"vxlan","VNI":1,"Port":8472,"MTU":1400}}`,
			})
			restartAll(ctx, c)
			for _, n := range c.Nodes() {
				expectMTU(ctx, c, n, n+"-fresh", 1350)
			}
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)
})

var _ = Describe("uplink", Label("kind:data-plane"), func() {
	// flannel#841, #1775. Reported: the uplink got another MTU, and device, subnet.env and pods kept
	// theirs; packets of full size were swallowed. Right: all follow, without a restart.
	It("with another MTU changes device, subnet.env, bridge and new pods, without a restart",
		Label("issue:flannel-841"), suite.Red("keep-mtu"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			set := func(mtu int) func(*suite.Machine) error {
				return func(m *suite.Machine) error {
					link, err := m.Netlink().LinkByName(suite.Uplink)
					if err != nil {
						return err
					}
					return m.Netlink().LinkSetMTU(link, mtu)
				}
			}
			c.Inject(ctx, suite.Done{Node: "node02", What: "uplink with MTU 1400", Do: set(1400), Undo: set(1500)})
			expectMTU(ctx, c, "node02", "node02-fresh", 1350)
			c.Heal(ctx)
			expectMTU(ctx, c, "node02", "node02-again", 1450)
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))
})
