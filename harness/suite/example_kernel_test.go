package suite_test

import (
	"fmt"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/suite"
)

// What the kernels of nodes hold.
func Example_kernel() {
	It("keeps its device and its entries", func(ctx SpecContext) {
		c := chaos.Running(ctx, suite.Options{})
		identity, mac := c.DeviceIdentity("node01"), c.MAC("node01")
		c.ExpectPermanent(ctx, "node01")
		rules, handles := c.RuleSet("node01"), c.RuleHandles("node01")
		before, err := c.DataPlane("node01")
		Expect(err).NotTo(HaveOccurred())
		c.Inject(ctx, suite.Tamper{Node: "node01", What: suite.RoutesDeleted})
		c.ExpectRepaired(ctx, "node01", func() ([]string, error) { return c.DataPlane("node01") }, before)
		Expect([]string{c.DeviceIdentity("node01"), c.MAC("node01")}).To(Equal([]string{identity, mac}))
		Expect(c.RuleSet("node01")).To(Equal(rules))
		Expect(c.RuleHandles("node01")).To(Equal(handles))
	})
}

// Neighbours, forwarding entries, ARP, and whatever else a namespace can tell.
func Example_look() {
	It("asks nobody", func(ctx SpecContext) {
		c := chaos.Running(ctx, suite.Options{})
		states, asked := c.WatchNeighbours("node01"), c.WatchARP("node01")
		defer states.Close()
		defer asked.Close()
		neighbours, err := c.Neighbours("node01")
		Expect(err).NotTo(HaveOccurred())
		entries, err := c.FDB("node01")
		Expect(err).NotTo(HaveOccurred())
		kernel, err := c.KernelLines("node01")
		Expect(err).NotTo(HaveOccurred())
		fmt.Println(neighbours, entries, kernel.Routes, suite.NeighbourState(netlink.NUD_PERMANENT))

		m, err := c.Machine("node01")
		Expect(err).NotTo(HaveOccurred())
		same, err := suite.FDBOf(m.NetNS(), c.Device())
		Expect(err).NotTo(HaveOccurred())
		Expect(same).To(Equal(entries))
		links, err := suite.Complete(m.Netlink().LinkList)
		Expect(err).NotTo(HaveOccurred())
		Expect(links).NotTo(BeEmpty())
		fmt.Println(m.ReadSysctl("net.ipv4.neigh." + suite.SysctlName(c.Device()) + ".gc_stale_time"))
		Expect(suite.InNetNS(m.NetNS(), func() error {
			conn, err := net.Dial("tcp", "192.168.200.10:2379")
			if err == nil {
				err = conn.Close()
			}
			return err
		})).To(Succeed())
	})
}

// Faults with arguments: cables, partitions and files.
func Example_faults() {
	It("survives a bad day", func(ctx SpecContext) {
		c := chaos.Running(ctx, suite.Options{})
		for _, f := range []suite.Fault{
			suite.PacketLoss("node01", 0.1), suite.PacketDelay("node01", 20*time.Millisecond, time.Millisecond),
			suite.PacketReorder("node01", 0.1, time.Millisecond), suite.PacketDuplicate("node01", 0.1),
			suite.PacketCorrupt("node01", 0.1), suite.RateLimit("node01", 1e6),
			suite.Isolated(c, "node01"), suite.Deaf(c, "node01"), suite.Halves(c), suite.Ring(c),
			suite.SubnetFileTruncated(c, "node01"), suite.StateTruncated(c, "node01"),
			suite.CNICacheTruncated("node01"),
		} {
			c.Inject(ctx, f)
			c.HealOne(ctx, f)
		}
	})
}
