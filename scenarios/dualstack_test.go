package scenarios

// flannel#2300, #1629, #1789 and k3s#9957. IPv6 was switched on in networks in which some nodes had leases
// of IPv4 only, or no IPv6 address. A node that cannot have both families was no peer at all.
//
// Right: both families where both ends have them, and IPv4 goes on everywhere.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/suite"
)

var _ = Describe("flannel-2300", Label("issue:flannel-2300", "kind:dual-stack"), func() {
	It("loses nothing in either family while etcd and an agent are away", func(ctx SpecContext) {
		suite.Needs(suite.FeatureIPv6)
		c := chaos.Cluster(ctx, suite.Options{IPv6: true})
		c.StartMesh(ctx)
		c.TalkFor(ctx, 25)
		c.Inject(ctx, suite.EtcdStop{}, suite.AgentKill{Node: "node04"})
		c.TalkFor(ctx, 100)
		for _, name := range c.Nodes() {
			c.ExpectPermanent(ctx, name)
			n, err := c.Node(name)
			Expect(err).NotTo(HaveOccurred())
			Expect(linkMTU(n.NetNS(), device6)).To(Equal(1430))
			entries, err := suite.FDBOf(n.NetNS(), device6)
			Expect(err).NotTo(HaveOccurred())
			Expect(entries).To(HaveLen(len(c.Nodes())-1), "IPv6 peers of %s", name)
			for _, e := range entries {
				Expect(e.String()).To(HaveSuffix("PERMANENT"))
			}
		}
		c.HealOne(ctx, suite.EtcdStop{})
		c.Heal(ctx)
		_, err := c.Mesh().Report().Pair(suite.Over6("node01-pod1"), suite.Over6("node04-pod1"))
		Expect(err).NotTo(HaveOccurred())
		c.ExpectNothingLost(ctx)
	}, suite.Long, suite.Red("new-device-at-start"), SpecTimeout(2*time.Minute))

	It("goes on over IPv4 with a node that has no IPv6 address", suite.Red("both-families-or-none"),
		func(ctx SpecContext) {
			suite.Needs(suite.FeatureIPv6)
			c := chaos.Cluster(ctx, suite.Options{
				IPv6: true, NoIPv6: []string{"node04"}, Idle: []string{"node04"},
			})
			c.Step("node04 joins, which has no IPv6 address")
			Expect(c.StartAgent(ctx, "node04")).To(Succeed())
			Expect(c.WaitConverged(ctx)).To(Succeed())
			Expect(c.AddPods(ctx, "pod1", "node04")[0].Addr6().IsValid()).To(BeFalse())
			c.StartMesh(ctx)
			c.TalkFor(ctx, 50)
			_, err := c.Mesh().Report().Pair(suite.Over6("node01-pod1"), suite.Over6("node02-pod1"))
			Expect(err).NotTo(HaveOccurred())
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))
})

// device6 is the overlay's device of IPv6, named as flannel's.
const device6 = "flannel-v6.1"

// plainSubnet is the subnet of a node with a plain flannel, laid out by hand.
const plainSubnet = "172.16.250.0/24"

// plainMAC is the MAC of its device.
var plainMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0xfa}

// layOutFlannel gives a machine what a plain flannel of IPv4 leaves in the kernel and on disk.
func layOutFlannel(ctx context.Context, c *suite.Cluster, name string, peers ...string) {
	GinkgoHelper()
	leases, err := c.Leases(ctx)
	Expect(err).NotTo(HaveOccurred())
	c.Inject(ctx, suite.Done{
		Node: name, What: "a plain flannel's device, entries and subnet file",
		Do: func(m *suite.Machine) error {
			index, err := plainDevice(m)
			if err != nil {
				return err
			}
			for _, peer := range peers {
				p, err := c.Machine(peer)
				if err != nil {
					return err
				}
				i := slices.IndexFunc(leases, func(l suite.Lease) bool { return l.PublicIP == p.Addr() })
				if i < 0 {
					return fmt.Errorf("%s has no lease", peer)
				}
				key, _, _ := strings.Cut(leases[i].Key, "&")
				err = plainPeer(m, index, strings.ReplaceAll(key, "-", "/"), p, c.MAC(peer))
				if err != nil {
					return err
				}
			}
			env := "FLANNEL_NETWORK=172.16.0.0/16\nFLANNEL_SUBNET=172.16.250.1/24\nFLANNEL_MTU=1450\n" +
				"FLANNEL_IPMASQ=true\n"
			path := c.SubnetFile()
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(env), 0o644),
				m.Sysctl("net.ipv4.ip_forward", "1"))
		},
	})
}

// plainDevice makes flannel.1 and returns its index.
func plainDevice(m *suite.Machine) (int, error) {
	nl := m.Netlink()
	uplink, err := nl.LinkByName(suite.Uplink)
	if err != nil {
		return 0, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = "flannel.1", 1450, plainMAC
	device := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: 1, VtepDevIndex: uplink.Attrs().Index,
		SrcAddr: m.Addr().AsSlice(), Port: 8472,
	}
	if err := nl.LinkAdd(device); err != nil {
		return 0, err
	}
	own, err := netlink.ParseAddr("172.16.250.0/32")
	if err != nil {
		return 0, err
	}
	return device.Attrs().Index, errors.Join(nl.AddrAdd(device, own), nl.LinkSetUp(device))
}

// plainPeer makes the entries that lead to a peer.
func plainPeer(m *suite.Machine, index int, subnet string, peer *suite.Machine, mac string) error {
	nl := m.Netlink()
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	vtep, dst, err := net.ParseCIDR(subnet)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: index, Dst: dst, Gw: vtep}
	route.SetFlag(netlink.FLAG_ONLINK)
	return errors.Join(
		nl.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: vtep, HardwareAddr: hw}),
		nl.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, Family: unix.AF_BRIDGE,
			Flags: netlink.NTF_SELF, IP: peer.Addr().AsSlice(), HardwareAddr: hw,
		}),
		nl.RouteReplace(route),
	)
}

var _ = Describe("dual-stack", Label("kind:dual-stack"), func() {
	It("has a plain flannel with an IPv4 lease for a peer of IPv4, and IPv6 goes on among the others",
		suite.Long, suite.Red("both-families-or-none"), func(ctx SpecContext) {
			suite.Needs(suite.FeatureIPv6)
			c := chaos.Cluster(ctx, suite.Options{IPv6: true, Idle: []string{"node04"}})
			m, err := c.Machine("node04")
			Expect(err).NotTo(HaveOccurred())
			layOutFlannel(ctx, c, "node04", "node01", "node02", "node03")
			c.Inject(ctx, suite.KeysPut{What: "the plain flannel's lease", Keys: map[string]string{
				"subnets/" + strings.ReplaceAll(plainSubnet, "/", "-"): fmt.Sprintf(`{"PublicIP":%q,`+
					`"PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":%q}}`, m.Addr(), plainMAC),
			}})
			Expect(c.AddPods(ctx, "pod1", "node04")[0].Addr6().IsValid()).To(BeFalse())
			c.StartMesh(ctx)
			c.TalkFor(ctx, 25)
			c.Inject(ctx, suite.AgentRestart{Node: "node02"}, suite.EtcdStop{})
			c.TalkFor(ctx, 50)
			c.HealOne(ctx, suite.EtcdStop{})
			c.TalkFor(ctx, 50)
			for _, name := range []string{"node01", "node02", "node03"} {
				c.ExpectPermanent(ctx, name)
				Expect(plane6(c, name)).To(HaveLen(3*2), "of the two peers of %s that have IPv6", name)
				agent, err := c.Agent(name)
				Expect(err).NotTo(HaveOccurred())
				Expect(agent.Tail(200)).NotTo(ContainElement(Or(ContainSubstring("ignoring"),
					ContainSubstring("level=ERROR"))), "the absent IPv6 is no error")
			}
			for _, pair := range [][2]string{{"node01-pod1", "node04-pod1"}, {"node04-pod1", "node03-pod1"}} {
				_, err = c.Mesh().Report().Pair(pair[0], pair[1])
				Expect(err).NotTo(HaveOccurred())
			}
			_, err = c.Mesh().Report().Pair(suite.Over6("node01-pod1"), suite.Over6("node03-pod1"))
			Expect(err).NotTo(HaveOccurred())
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))

	DescribeTable("tampering with IPv6 is repaired within a second", suite.Red("deaf"),
		func(ctx SpecContext, what string, do func(*suite.Machine, netlink.Link) error) {
			c := chaos.Running(ctx, suite.Options{IPv6: true})
			before := plane6(c, "node02")
			Expect(before).To(HaveLen(3*(len(c.Nodes())-1)), "a route, a neighbour, a forwarding entry for each")
			for _, line := range before {
				Expect(line).To(Or(HavePrefix("route"), HaveSuffix("PERMANENT")))
			}
			c.Inject(ctx, suite.Done{Node: "node02", What: what, Do: func(m *suite.Machine) error {
				link, err := m.Netlink().LinkByName(device6)
				if err != nil {
					return err
				}
				return do(m, link)
			}})
			c.ExpectRepaired(ctx, "node02", func() ([]string, error) { return plane6(c, "node02"), nil }, before)
		},
		Entry("routes", SpecTimeout(2*time.Minute), "IPv6 routes deleted",
			func(m *suite.Machine, link netlink.Link) error {
				return ofEach(overlay6(m, link), func(r netlink.Route) error { return m.Netlink().RouteDel(&r) })
			}),
		Entry("routes that lead elsewhere", SpecTimeout(2*time.Minute), "IPv6 routes changed",
			func(m *suite.Machine, link netlink.Link) error {
				uplink, err := m.Netlink().LinkByName(suite.Uplink)
				if err != nil {
					return err
				}
				// In one step: between a deletion and an addition the agent may have put its own back.
				return ofEach(overlay6(m, link), func(r netlink.Route) error {
					return m.Netlink().RouteReplace(&netlink.Route{
						Dst: r.Dst, LinkIndex: uplink.Attrs().Index, Gw: net.ParseIP("fd00:200::dead"),
						Priority: r.Priority, Table: r.Table,
					})
				})
			}),
		Entry("neighbours", SpecTimeout(2*time.Minute), "IPv6 neighbours deleted",
			func(m *suite.Machine, link netlink.Link) error {
				return ofEach(neighbours6(m, link, netlink.FAMILY_V6), func(n netlink.Neigh) error {
					return m.Netlink().NeighDel(&n)
				})
			}),
		Entry("neighbours that age", SpecTimeout(2*time.Minute), "IPv6 neighbours with another MAC, and STALE",
			func(m *suite.Machine, link netlink.Link) error {
				return ofEach(neighbours6(m, link, netlink.FAMILY_V6), func(n netlink.Neigh) error {
					n.State, n.HardwareAddr = netlink.NUD_STALE, plainMAC
					return m.Netlink().NeighSet(&n)
				})
			}),
		Entry("forwarding entries", SpecTimeout(2*time.Minute), "IPv6 forwarding entries deleted",
			func(m *suite.Machine, link netlink.Link) error {
				return ofEach(neighbours6(m, link, unix.AF_BRIDGE), func(n netlink.Neigh) error {
					return m.Netlink().NeighDel(&n)
				})
			}),
		Entry("the device", SpecTimeout(2*time.Minute), "IPv6 device deleted",
			func(m *suite.Machine, link netlink.Link) error { return m.Netlink().LinkDel(link) }),
		Entry("forwarding off", SpecTimeout(2*time.Minute), "IPv6 forwarding switched off",
			func(m *suite.Machine, _ netlink.Link) error { return m.Sysctl("net.ipv6.conf.all.forwarding", "0") }),
	)
})

// ofEach runs do for every one of a list that must not be empty.
func ofEach[T any](all []T, do func(T) error) error {
	if len(all) == 0 {
		return errors.New("there is none")
	}
	var errs []error
	for _, v := range all {
		errs = append(errs, do(v))
	}
	return errors.Join(errs...)
}

// overlay6 lists the routes to peers over the IPv6 device.
func overlay6(m *suite.Machine, link netlink.Link) []netlink.Route {
	GinkgoHelper()
	all, err := suite.Complete(func() ([]netlink.Route, error) {
		return m.Netlink().RouteList(link, netlink.FAMILY_V6)
	})
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, func(r netlink.Route) bool { return r.Gw == nil })
}

// neighbours6 lists the entries of a table of the IPv6 device that are not the kernel's own.
func neighbours6(m *suite.Machine, link netlink.Link, family int) []netlink.Neigh {
	GinkgoHelper()
	all, err := suite.Complete(func() ([]netlink.Neigh, error) {
		return m.Netlink().NeighList(link.Attrs().Index, family)
	})
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, func(n netlink.Neigh) bool { return n.State&netlink.NUD_NOARP != 0 })
}

// plane6 lists what leads to the peers over IPv6: a route, a neighbour and a forwarding entry for each. It
// is empty while the device is gone.
func plane6(c *suite.Cluster, name string) []string {
	GinkgoHelper()
	m, err := c.Machine(name)
	Expect(err).NotTo(HaveOccurred())
	link, err := m.Netlink().LinkByName(device6)
	if err != nil {
		return nil
	}
	var lines []string
	for _, r := range overlay6(m, link) {
		lines = append(lines, fmt.Sprintf("route %s via %s", r.Dst, r.Gw))
	}
	for _, family := range []int{netlink.FAMILY_V6, unix.AF_BRIDGE} {
		for _, n := range neighbours6(m, link, family) {
			lines = append(lines, fmt.Sprintf("%s at %s %s", n.IP, n.HardwareAddr, suite.NeighbourState(n.State)))
		}
	}
	slices.Sort(lines)
	return lines
}
