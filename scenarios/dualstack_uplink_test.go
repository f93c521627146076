package scenarios

// The uplink of a dual-stack node loses its IPv6 address, as it does whenever it goes down or a router stops
// advertising. Right: IPv4 does not feel it, the device and the lease stay, and IPv6 goes on by itself.

import (
	"fmt"
	"net"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/suite"
)

// globalIPv6 lists the uplink's IPv6 addresses that are not link-local.
func globalIPv6(m *suite.Machine) (netlink.Link, []netlink.Addr, error) {
	link, err := m.Netlink().LinkByName(suite.Uplink)
	if err != nil {
		return nil, nil, err
	}
	all, err := m.Netlink().AddrList(link, netlink.FAMILY_V6)
	var global []netlink.Addr
	for _, a := range all {
		if a.Scope == unix.RT_SCOPE_UNIVERSE {
			global = append(global, a)
		}
	}
	return link, global, err
}

// uplinkWithoutIPv6 takes the uplink's IPv6 address away; the heal gives it back.
func uplinkWithoutIPv6(name string, own net.IPNet) suite.Fault {
	return suite.Done{
		Node: name, What: "uplink without its IPv6 address",
		Do: func(m *suite.Machine) error {
			link, all, err := globalIPv6(m)
			if err != nil {
				return err
			}
			return ofEach(all, func(a netlink.Addr) error { return m.Netlink().AddrDel(link, &a) })
		},
		Undo: func(m *suite.Machine) error {
			link, _, err := globalIPv6(m)
			if err != nil {
				return err
			}
			return m.Netlink().AddrAdd(link, &netlink.Addr{IPNet: &own, Flags: unix.IFA_F_NODAD})
		},
	}
}

// ofIPv6 tells whether a pair of the mesh is one of IPv6 and has the node as an end.
func ofIPv6(p suite.PairReport, name string) bool { return p.IPv6 && p.On(name) }

var _ = Describe("dual-stack", Label("kind:dual-stack"), func() {
	It("keeps device and lease while the uplink has lost its IPv6 address, and loses nothing of IPv4",
		suite.Long, suite.Red("address-not-kept"), func(ctx SpecContext) {
			c := chaos.Running(ctx, suite.Options{IPv6: true})
			m, err := c.Machine("node02")
			Expect(err).NotTo(HaveOccurred())
			_, own, err := globalIPv6(m)
			Expect(err).NotTo(HaveOccurred())
			Expect(own).To(HaveLen(1))
			before, entries := c.DeviceIdentity("node02"), plane6(c, "node02")
			link6, err := m.Netlink().LinkByName(device6)
			Expect(err).NotTo(HaveOccurred())
			leases, err := c.Leases(ctx)
			Expect(err).NotTo(HaveOccurred())
			theirs := plane6(c, "node01")
			stays := func() {
				GinkgoHelper()
				now, err := c.Leases(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(now).To(HaveLen(len(leases)))
				for i, l := range now {
					Expect(l.Value).To(Equal(leases[i].Value), "the lease of %s was written again", l.Key)
				}
				again, err := m.Netlink().LinkByName(device6)
				Expect(err).NotTo(HaveOccurred())
				Expect(again.Attrs().Index).To(Equal(link6.Attrs().Index), "the IPv6 device was made anew")
				Expect(c.DeviceIdentity("node02")).To(Equal(before))
				Eventually(ctx, func() []string { return plane6(c, "node02") }).Should(Equal(entries))
				Eventually(ctx, func() []string { return plane6(c, "node01") }).
					Should(Equal(theirs), "what a peer has of it")
			}
			const rounds = 2
			for range rounds {
				c.Inject(ctx, uplinkWithoutIPv6("node02", *own[0].IPNet))
				c.TalkFor(ctx, 75)
				stays()
				at := c.Heal(ctx)
				c.ExpectRecovered(ctx, at, time.Second)
				stays()
			}
			if suite.IsOurs() {
				agent, err := c.Agent("node02")
				Expect(err).NotTo(HaveOccurred())
				log := strings.Join(agent.Tail(200), "\n")
				Expect(strings.Count(log, "has lost its address of IPv6")).To(Equal(rounds), log)
				Expect(strings.Count(log, "has its address of IPv6 again")).To(Equal(rounds), log)
				Expect(log).NotTo(ContainSubstring("level=ERROR"))
			}
			c.ExpectFreshPods(ctx, "fresh")
			report, err := c.Mesh().Settle(ctx)
			Expect(err).NotTo(HaveOccurred())
			lost, sent := report.Lost(func(p suite.PairReport) bool { return !ofIPv6(p, "node02") })
			Expect(sent).To(BeNumerically(">", 0))
			Expect(lost).To(BeZero(), "of %d echoes that are not of IPv6 and node02", sent)
			gone, _ := report.Lost(func(p suite.PairReport) bool { return ofIPv6(p, "node02") })
			Expect(gone).To(BeNumerically(">", 0), "IPv6 of node02 has felt nothing, so nothing was broken")
		}, SpecTimeout(2*time.Minute))
})

var _ = Describe("IPv6 alone", Label("kind:dual-stack"), func() {
	It(
		"makes a network of nodes whose leases name no IPv4 address",
		suite.Long,
		suite.Red("new-device-at-start"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureIPv6)
			names := []string{"node01", "node02", "node03"}
			c := chaos.Cluster(ctx, suite.Options{
				IPv6: true, Nodes: len(names), Idle: names, PodsPerNode: -1,
			})
			const why = "it looks at IPv4, which this network has not"
			for _, id := range []string{
				"one-lease-per-node", "agent-makes-progress", "leases-do-not-overlap", "subnet-file-equals-lease",
			} {
				c.Waive(id, why)
			}
			c.Inject(ctx, suite.ConfigChanged{Config: fmt.Sprintf(
				`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":%q,"Backend":{"Type":"vxlan","VNI":1,"Port":8472}}`,
				suite.Network6)})
			for _, name := range names {
				_, err := c.LaunchAgent(ctx, name)
				Expect(err).NotTo(HaveOccurred())
			}
			expect := func(when string) {
				GinkgoHelper()
				for _, name := range names {
					Eventually(ctx, func() []string { return plane6(c, name) }).WithTimeout(10*time.Second).
						Should(HaveLen(3*(len(names)-1)), "%s, %s", name, when)
				}
			}
			expect("first")
			leases, err := c.Leases(ctx)
			Expect(err).NotTo(HaveOccurred())
			only6 := And(ContainSubstring(`"PublicIP":"0.0.0.0"`), Not(ContainSubstring(`"BackendData"`)))
			Expect(leases).To(And(HaveLen(len(names)),
				HaveEach(And(HaveField("Key", HavePrefix("fc00:172:0:")), HaveField("Value", only6)))))
			overlay := map[string]string{} // the address of a node's device by its name
			for _, name := range names {
				m, err := c.Machine(name)
				Expect(err).NotTo(HaveOccurred())
				link, err := m.Netlink().LinkByName(device6)
				Expect(err).NotTo(HaveOccurred())
				all, err := m.Netlink().AddrList(link, netlink.FAMILY_V6)
				Expect(err).NotTo(HaveOccurred())
				for _, a := range all {
					if a.Scope == unix.RT_SCOPE_UNIVERSE {
						overlay[name] = a.IP.String()
						Expect(c.Mesh().Add(suite.Endpoint{
							Name: suite.Over6(name), Node: name, NS: m.NetNS(),
							Addr: prefix(a.IP.String() + "/128").Addr(),
						})).To(Succeed())
					}
				}
			}
			Expect(overlay).To(HaveLen(len(names)))
			for _, from := range names {
				for _, to := range names {
					if from != to {
						Expect(c.Mesh().Probe(suite.Over6(from), suite.Over6(to))).To(Succeed())
					}
				}
			}
			c.TalkFor(ctx, 25)
			c.Inject(ctx, suite.EtcdStop{}, suite.AgentKill{Node: "node02"})
			// The heal alone would wait for the device of IPv4, which this network has not.
			agent, err := c.LaunchAgent(ctx, "node02")
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, agent.Ready()).WithTimeout(10*time.Second).Should(BeClosed(), "node02 starts as saved")
			c.HealOne(ctx, suite.AgentKill{Node: "node02"})
			c.TalkFor(ctx, 75)
			c.HealOne(ctx, suite.EtcdStop{})
			c.TalkFor(ctx, 25)
			expect("after a restart")
			again, err := c.Leases(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(HaveLen(len(leases)))
			for i, l := range again {
				Expect(l.Key).To(Equal(leases[i].Key))
			}
			c.ExpectNothingLost(ctx)
		},
		SpecTimeout(2*time.Minute),
	)
})
