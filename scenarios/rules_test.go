package scenarios

// Firewall rules that are in the way, flushed, or written more than once. Right: pods reach each other and
// see each other's real addresses, and reach the outside masqueraded (flannel#799, #1834, #1337, #1146,
// PR#1172).

import (
	"context"
	"net"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/suite"
)

// seenBy connects from one pod to a port of another and returns the address that the other saw.
func seenBy(ctx context.Context, server, client *suite.Pod) (netip.Addr, error) {
	var listener net.Listener
	err := suite.InNetNS(server.NetNS, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(server.Addr(), 0).String())
		return err
	})
	if err != nil {
		return netip.Addr{}, err
	}
	defer listener.Close()
	var conn net.Conn
	err = suite.InNetNS(client.NetNS, func() (err error) {
		conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		return netip.Addr{}, err
	}
	defer accepted.Close()
	from, err := netip.ParseAddrPort(accepted.RemoteAddr().String())
	return from.Addr(), err
}

// outside adds etcd's machine, which knows no pod network, to the mesh as what is outside the overlay.
func outside(c *suite.Cluster) string {
	GinkgoHelper()
	m := c.Etcd().Machine()
	e := suite.Endpoint{Name: m.Name(), Node: m.Name(), NS: m.NetNS(), Addr: m.Addr()}
	Expect(c.Mesh().Add(e)).To(Succeed())
	return m.Name()
}

var _ = Describe("rules", Label("kind:rules"), func() {
	// flannel#699, #799, PR#1172. Reported: Docker sets the policy of FORWARD to DROP, others end that
	// chain with a REJECT, and pods of different nodes cannot talk. Right: they can, whoever was there
	// first.
	DescribeTable("that drop forwarding before the agent starts are passed through",
		suite.Red("no-forward-rules"), func(ctx SpecContext, what suite.Tampering) {
			c := chaos.Running(ctx, suite.Options{Nodes: 4, Idle: []string{"node04"}})
			c.Inject(ctx, suite.Tamper{Node: "node04", What: what})
			c.Step("node04 joins")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLost(ctx)
		},
		Entry("policy DROP", SpecTimeout(2*time.Minute), Label("issue:flannel-699"), suite.ForwardDrop),
		Entry("a catch-all REJECT", SpecTimeout(2*time.Minute), Label("issue:flannel-1172"), suite.ForwardReject),
	)

	// flannel#934, PR#1172. Reported: a firewall that is reloaded puts a catch-all REJECT in front of the
	// agent's rules. Right: pods reach each other again within seconds.
	It("with a catch-all REJECT put in front while running are passed through", Label("issue:flannel-934"),
		suite.Red("deaf"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			c.Inject(ctx, suite.Tamper{Node: "node02", What: suite.ForwardReject})
			at := time.Now()
			c.ExpectRecovered(ctx, at, time.Second)
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLostBut(ctx, "node02")
		}, SpecTimeout(2*time.Minute))

	// flannel#1834, PR#808. Reported: somebody flushed all rules (firewalld, iptables -F), and
	// masquerading was gone until the agent was restarted. Right: back by itself.
	It("flushed are back, and pods still reach the outside masqueraded", Label("issue:flannel-1834"),
		suite.Red("rules-once"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			out := outside(c)
			from := c.PodsOn("node02")[0]
			reached := func() (bool, error) {
				a, err := c.Mesh().Ask(ctx, from.Name, out, 2)
				return a.Lost == 0, err
			}
			Expect(reached()).To(BeTrue(), "%s does not reach the outside", from.Name)
			before := c.RuleSet("node02")
			c.Inject(ctx, suite.Tamper{Node: "node02", What: suite.RulesFlushed})
			Eventually(ctx, func() []string { return c.RuleSet("node02") }).WithTimeout(2*time.Second).
				Should(Equal(before), "the rules that were flushed are not back")
			Eventually(
				ctx,
				reached,
			).WithTimeout(5*time.Second).
				Should(BeTrue(), "%s does not reach the outside", from.Name)
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))

	// flannel#1337, #1146. Reported: restarts left rules twice, in the wrong order or of another subnet,
	// and pods saw a node's address in place of a pod's. Right: each once, and pod to pod is never
	// masqueraded.
	It("leave pods their own addresses, and are there once, however often the agent starts",
		Label("issue:flannel-1337"), suite.Red("rules-of-other-subnet", "rules-appended"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{})
			before := c.RuleSet("node02")
			for range 10 {
				c.Inject(ctx, suite.AgentRestart{Node: "node02"})
			}
			Eventually(ctx, func(g Gomega) {
				after := c.RuleSet("node02")
				g.Expect(after).To(Equal(before), "%d rules after ten restarts, %d before", len(after), len(before))
			}).Should(Succeed())
			for _, server := range c.Pods() {
				for _, client := range c.Pods() {
					if server == client {
						continue
					}
					seen, err := seenBy(ctx, server, client)
					Expect(err).NotTo(HaveOccurred())
					Expect(seen).To(Equal(client.Addr()), "%s sees another address of %s", server.Name, client.Name)
				}
			}
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))
})
