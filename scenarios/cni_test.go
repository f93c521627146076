package scenarios

// What a container runtime asks of the CNI plugin when things are not as they should be. Right: a clear
// error that passes, nothing left behind, and a DEL that can be repeated (flannel#2437, #1662, plugins#252,
// #29, #1121).

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/suite"
)

// reservations is where host-local keeps a file for each address in use: a folder named after the network.
func reservations(c *suite.Cluster, name string) string {
	GinkgoHelper()
	n, err := c.Node(name)
	Expect(err).NotTo(HaveOccurred())
	network, err := n.Network()
	Expect(err).NotTo(HaveOccurred())
	var list struct{ Name string }
	Expect(json.Unmarshal(network.ConfList, &list)).To(Succeed())
	return filepath.Join("/var/lib/cni/networks", list.Name)
}

// saysOurs states, beside the words that any plugin must find, those of this repository's where pods are
// made with it.
func saysOurs(c *suite.Cluster, name, words string) types.GomegaMatcher {
	GinkgoHelper()
	n, err := c.Node(name)
	Expect(err).NotTo(HaveOccurred())
	network, err := n.Network()
	Expect(err).NotTo(HaveOccurred())
	if !strings.Contains(string(network.ConfList), "overlay-cni") {
		return HaveOccurred()
	}
	return MatchError(ContainSubstring(words))
}

// leftovers lists the veths and reservations of a node.
func leftovers(c *suite.Cluster, name string) []string {
	GinkgoHelper()
	m, err := c.Machine(name)
	Expect(err).NotTo(HaveOccurred())
	links, err := m.Netlink().LinkList()
	Expect(err).NotTo(HaveOccurred())
	var left []string
	for _, l := range links {
		if l.Type() == "veth" && l.Attrs().Name != suite.Uplink {
			left = append(left, "veth "+l.Attrs().Name)
		}
	}
	files, err := filepath.Glob(m.Path(reservations(c, name)) + "/*.*.*.*")
	Expect(err).NotTo(HaveOccurred())
	for _, f := range files {
		if base := filepath.Base(f); !strings.HasPrefix(base, "last_reserved_ip") {
			left = append(left, "reservation "+base)
		}
	}
	return left
}

// alone builds a cluster of two nodes, the second without agent and pods.
func alone(ctx context.Context) *suite.Cluster {
	GinkgoHelper()
	return chaos.Cluster(ctx, suite.Options{Nodes: 2, Idle: []string{"node02"}})
}

var _ = Describe("CNI", Label("kind:cni"), func() {
	// flannel#2437, #2253. Reported: a pod set up before the agent had written subnet.env failed with a
	// file not found, and left things behind. Right: a clear error that can be retried, and nothing left.
	It("ADD before the node has a subnet says so, leaks nothing, and works when it has one",
		Label("issue:flannel-2437"), suite.Red("guess-subnet"), func(ctx SpecContext) {
			c := alone(ctx)
			c.Needs(suite.FeatureSubnetFile)
			_, err := c.AddPod(ctx, "node02", "early")
			Expect(err).To(And(MatchError(ContainSubstring("subnet.env")), saysOurs(c, "node02", "agent")))
			Expect(leftovers(c, "node02")).To(BeEmpty())
			Expect(c.StartAgent(ctx, "node02")).To(Succeed())
			p, err := c.AddPod(ctx, "node02", "early")
			Expect(err).NotTo(HaveOccurred())
			Expect(c.DelPod(ctx, p)).To(Succeed())
			Expect(leftovers(c, "node02")).To(BeEmpty())
		}, SpecTimeout(2*time.Minute))

	// flannel#1662; kubernetes#43014. Reported: with the plugin's cache damaged, gone, or removed before
	// the delegate had failed, DEL failed for ever or left veth and address behind. Right: it succeeds,
	// and nothing is left.
	DescribeTable(
		"DEL leaves nothing",
		func(ctx SpecContext, damage func(ctx context.Context, c *suite.Cluster, m *suite.Machine, p *suite.Pod)) {
			c := alone(ctx)
			p := c.PodsOn("node01")[0]
			damage(ctx, c, p.Machine, p)
			Expect(c.DelPod(ctx, p)).To(Succeed())
			Expect(leftovers(c, "node01")).To(BeEmpty())
		},
		Entry("when the plugin's cache is truncated", SpecTimeout(2*time.Minute), Label("issue:flannel-1662"),
			suite.Red("cache-before-del"),
			func(ctx context.Context, c *suite.Cluster, m *suite.Machine, p *suite.Pod) {
				c.Needs(suite.FeatureSubnetFile) // an agent without it has another plugin
				c.Inject(ctx, suite.Done{
					Node: m.Name(), What: "plugin's cache truncated",
					Do: func(*suite.Machine) error { return os.Truncate("/var/lib/cni/flannel/"+p.Name, 0) },
				})
			}),
		Entry("when the plugin's cache is gone", SpecTimeout(2*time.Minute), Label("issue:flannel-1662"),
			suite.Red("cache-before-del"),
			func(ctx context.Context, c *suite.Cluster, m *suite.Machine, p *suite.Pod) {
				c.Needs(suite.FeatureSubnetFile)
				c.Inject(ctx, suite.FileDeleted{Node: m.Name(), Path: "/var/lib/cni/flannel/" + p.Name})
			}),
		Entry("when it is repeated after the delegate has failed", SpecTimeout(2*time.Minute),
			Label("issue:kubernetes-43014"), suite.Red("cache-before-del"),
			func(ctx context.Context, c *suite.Cluster, m *suite.Machine, p *suite.Pod) {
				// A lock that is a folder makes host-local fail.
				lock := reservations(c, m.Name()) + "/lock"
				c.Inject(ctx, suite.Done{
					Node: m.Name(), What: "host-local kept from working",
					Do: func(*suite.Machine) error {
						if err := os.Rename(lock, lock+".aside"); err != nil {
							return err
						}
						return os.Mkdir(lock, 0o755)
					},
					Undo: func(*suite.Machine) error {
						if err := os.Remove(lock); err != nil {
							return err
						}
						return os.Rename(lock+".aside", lock)
					},
				})
				Expect(c.DelPod(ctx, p)).NotTo(Succeed(), "DEL went well although host-local cannot work")
				c.Heal(ctx)
			}),
		Entry(
			"when the agent and its subnet.env are gone",
			SpecTimeout(2*time.Minute),
			Label("issue:flannel-2253"),
			suite.Red("del-needs-subnet"),
			func(ctx context.Context, c *suite.Cluster, m *suite.Machine, _ *suite.Pod) {
				c.Inject(ctx, suite.AgentKill{Node: m.Name()},
					suite.FileDeleted{Node: m.Name(), Path: c.SubnetFile()})
			},
		),
	)

	// plugins#252, #697. Reported: pods that vanished with their node never had a DEL, and their addresses
	// were never freed, until none was left. Right: garbage collection frees them.
	It("GC frees what pods that vanished have held, until the range is exhausted and after",
		suite.Long, Label("issue:plugins-252"), suite.Red("gc-nothing"), func(ctx SpecContext) {
			suite.Needs(suite.FeatureKeys)
			c := chaos.Cluster(ctx, suite.Options{
				Nodes: 2, Network: prefix("172.16.0.0/20"), SubnetLen: 28,
			})
			var err error
			for i := range 20 {
				var p *suite.Pod
				if p, err = c.AddPod(ctx, "node01", fmt.Sprintf("crash%d", i)); err != nil {
					break
				}
				Expect(c.VanishPod(p)).To(Succeed())
			}
			Expect(err).To(MatchError(ContainSubstring("no IP addresses available")))
			// libcni's own memory of them would have it DEL them one by one.
			c.Inject(ctx, suite.Done{
				Node: "node01", What: "runtime has forgotten its pods",
				Do: func(*suite.Machine) error { return os.RemoveAll("/var/lib/cni/results") },
			})
			c.Step("the runtime says which pods there are")
			Expect(c.CollectGarbage(ctx, "node01")).To(Succeed())
			fresh, err := c.AddPod(ctx, "node01", "fresh")
			Expect(err).NotTo(HaveOccurred())
			c.ExpectReach(ctx, suite.Each([]*suite.Pod{fresh}, c.PodsOn("node02"), true)...)
			Expect(leftovers(c, "node01")).To(HaveLen(4), "two pods have a veth and an address each")
		}, SpecTimeout(2*time.Minute))

	// plugins#29, PR#97. Reported: an ADD that failed half way left a veth on cni0 and a reserved address.
	// Right: nothing is left.
	It("ADD that fails when the bridge has done its part leaves nothing", Label("issue:plugins-29"),
		suite.Red("no-undo"), func(ctx SpecContext) {
			c := alone(ctx)
			n, err := c.Node("node01")
			Expect(err).NotTo(HaveOccurred())
			before := leftovers(c, "node01")
			network, err := n.Network()
			Expect(err).NotTo(HaveOccurred())
			bridge, err := invoke.FindInPath("bridge", network.BinDirs)
			Expect(err).NotTo(HaveOccurred())
			env := n.Path(c.SubnetFile())
			was, err := os.ReadFile(env)
			Expect(err).NotTo(HaveOccurred())
			const wrapped = "/var/lib/wrapped"
			c.Inject(ctx, suite.AgentPause{Node: "node01"}) // it would put its subnet back
			c.Inject(ctx, suite.Done{
				Node: "node01", What: "subnet moves as soon as the bridge has set a pod up",
				Do:   func(*suite.Machine) error { return wrapBridge(wrapped, bridge, c.SubnetFile()) },
				Undo: func(*suite.Machine) error { return os.WriteFile(c.SubnetFile(), was, 0o644) },
			})
			network.BinDirs = append([]string{wrapped}, network.BinDirs...)
			_, err = c.AddPodIn(ctx, "node01", "moved", network)
			Expect(err).To(saysOurs(c, "node01", "moved to another subnet"))
			Expect(leftovers(c, "node01")).To(ConsistOf(before))
		}, SpecTimeout(2*time.Minute))

	// plugins#1121. Reported: an ADD failed because routes or addresses changed while the kernel listed
	// them (NLM_F_DUMP_INTR). Right: the list is read again.
	It(
		"ADD works while routes and addresses come and go",
		Label("issue:plugins-1121"),
		suite.Long,
		suite.Red("dumps-once"),
		func(ctx SpecContext) {
			c := alone(ctx)
			m, err := c.Machine("node01")
			Expect(err).NotTo(HaveOccurred())
			tables, err := newChurn(m)
			Expect(err).NotTo(HaveOccurred())
			churning, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- tables.run(churning) }()
			calm := sync.OnceValue(func() error { stop(); return <-ended })
			defer calm()
			c.Inject(ctx, suite.Done{
				Node: "node01", What: "addresses changing while they are listed",
				Do: func(*suite.Machine) error { return listInterrupted() },
			})
			for i := range 15 {
				p, err := c.AddPod(ctx, "node01", fmt.Sprintf("pod%d", i))
				Expect(err).NotTo(HaveOccurred())
				Expect(c.DelPod(ctx, p)).To(Succeed())
			}
			Expect(calm()).To(Succeed())
		},
		SpecTimeout(2*time.Minute),
	)
})

// wrapBridge puts a bridge plugin into a folder that runs the real one and then changes the node's subnet,
// as if the node had moved meanwhile.
func wrapBridge(dir, bridge, subnetFile string) error {
	script := fmt.Sprintf("#!/bin/sh\nout=$(%q)\ncode=$?\n"+
		"[ \"$CNI_COMMAND\" = ADD ] && sed -i 's/^FLANNEL_SUBNET=.*/FLANNEL_SUBNET=172.16.250.1\\/24/' %s\n"+
		"printf %%s \"$out\"\nexit $code\n", bridge, subnetFile)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bridge"), []byte(script), 0o755)
}

// listInterrupted lists addresses until changes have interrupted ten lists, for ten seconds at most. It is
// called where they change.
func listInterrupted() error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE) // on a socket of its own, which no change waits for
	if err != nil {
		return err
	}
	defer nl.Close()
	lists, interrupted := 0, 0
	for begun := time.Now(); interrupted < 10; lists++ {
		_, err := nl.AddrList(nil, netlink.FAMILY_ALL)
		switch {
		case errors.Is(err, netlink.ErrDumpInterrupted):
			interrupted++
		case err != nil:
			return err
		case time.Since(begun) > 10*time.Second:
			return fmt.Errorf("%d of %d lists of addresses were interrupted", interrupted, lists)
		}
	}
	return nil
}

// churn is addresses and routes that come and go on a machine. There are so many addresses that the kernel
// lists them in several parts, and a change between two parts interrupts the list. Those of IPv6 change
// most: a list of both families, as the overlay's plugin makes, is interrupted as often as not, and one of
// IPv4, as the bridge plugin makes, seldom: that gives up after five (pkg/netlinksafe, maxAttempts).
type churn struct {
	nl         *netlink.Handle
	lo, uplink netlink.Link
}

const (
	churned4 = 800
	churned6 = 1200
)

// newChurn adds the addresses.
func newChurn(m *suite.Machine) (churn, error) {
	c := churn{nl: m.Netlink()}
	var err error
	if c.lo, err = c.nl.LinkByName("lo"); err != nil {
		return c, err
	}
	if c.uplink, err = c.nl.LinkByName(suite.Uplink); err != nil {
		return c, err
	}
	for i := range churned4 {
		if err := c.nl.AddrAdd(c.lo, address4(i)); err != nil {
			return c, err
		}
	}
	for i := range churned6 {
		if err := c.nl.AddrAdd(c.lo, address6(i)); err != nil {
			return c, err
		}
	}
	return c, nil
}

func address4(i int) *netlink.Addr {
	i %= churned4
	ip := net.IPv4(10, 201, byte(i>>8), byte(i)).To4()
	return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}}
}

func address6(i int) *netlink.Addr {
	i %= churned6
	ip := net.ParseIP(fmt.Sprintf("fd01::%x", i+1))
	return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(128, 128)}, Flags: unix.IFA_F_NODAD}
}

// run takes an address of IPv6 away and gives it back, every 2 ms, and one of IPv4 and a route every 8 ms,
// until ctx ends.
func (c churn) run(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := errors.Join(c.nl.AddrDel(c.lo, address6(i)), c.nl.AddrAdd(c.lo, address6(i)))
		if i%4 == 0 {
			r := &netlink.Route{
				LinkIndex: c.uplink.Attrs().Index, Gw: net.IPv4(192, 168, 200, 1),
				Dst: &net.IPNet{IP: net.IPv4(10, 200, byte(i/4), 0).To4(), Mask: net.CIDRMask(24, 32)},
			}
			err = errors.Join(err, c.nl.RouteReplace(r), c.nl.AddrDel(c.lo, address4(i/4)),
				c.nl.AddrAdd(c.lo, address4(i/4)), c.nl.RouteDel(r))
		}
		if err != nil {
			return err
		}
	}
}
