package checker_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/checker"
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
)

// world is a cluster in which something is broken by hand, with its checker.
type world struct {
	*cluster.Cluster
	*checker.Checker
	t *testing.T
}

func ours() driver.Ours { return driver.Ours{Bin: os.Getenv(build.Env)} }

// newWorld makes a world that is closed with the test.
func newWorld(t *testing.T, opts cluster.Options) world {
	t.Helper()
	k, err := checker.New()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(t.Context(), opts, nil, k.Watch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return world{c, k, t}
}

func (w world) machine(name string) *node.Machine {
	m, err := w.Machine(name)
	w.must(err)
	return m
}

func (w world) must(errs ...error) {
	w.t.Helper()
	for _, err := range errs {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// pause stops node02's agent, so that it does not repair what is broken on its node.
func (w world) pause() (*node.Machine, netlink.Link) {
	w.must(w.Inject(w.t.Context(), fault.AgentPause{Node: "node02"}))
	m := w.machine("node02")
	l, err := m.Netlink().LinkByName(w.Device())
	w.must(err)
	return m, l
}

func (w world) inject(faults ...fault.Fault) { w.must(w.Inject(w.t.Context(), faults...)) }

// leaseText is a lease as a plain flannel node writes it.
func leaseText(ip, mac string) string {
	l := flannelkeys.Lease{PublicIP: netip.MustParseAddr(ip), Backend: checker.VXLAN, VNI: 1, VtepMAC: mac}
	return l.JSON()
}

// broken is one way to break an invariant of a real world, and words of the sentence that says so.
type broken struct {
	id   string
	do   func(w world)
	want []string
}

var mac = net.HardwareAddr{2, 0, 0, 0, 0, 0x77}

func brokenWorlds() []broken {
	return []broken{
		{"one-lease-per-node", func(w world) {
			w.inject(
				fault.AgentPause{Node: "node02"},
				fault.AgentPause{Node: "node01"},
				fault.KeysPut{
					What: "a second lease",
					Keys: map[string]string{"subnets/172.16.250.0-24": leaseText("192.168.200.202", mac.String())},
				},
			)
		}, []string{"192.168.200.202 has 2 leases", "subnets/172.16.250.0-24"}},
		{"leases-do-not-overlap", func(w world) {
			key, err := w.SubnetOf("node01")
			w.must(err)
			half := "subnets/" + strings.TrimSuffix(key, "24") + "25"
			w.inject(fault.KeysPut{
				What: "a lease of half a subnet",
				Keys: map[string]string{half: leaseText("192.168.200.77", mac.String())},
			})
		}, []string{"192.168.200.201 and subnets/", "of 192.168.200.77 overlap"}},
		{"kernel-holds-what-is-explained", func(w world) {
			m, l := w.pause()
			w.must(m.Netlink().RouteAdd(&netlink.Route{
				LinkIndex: l.Attrs().Index, Dst: ipNet("172.16.251.0/24"),
				Gw: net.IPv4(172, 16, 251, 0), Flags: unix.RTNH_F_ONLINK,
			}))
		}, []string{"node02 has route 172.16.251.0/24 via 172.16.251.0 dev flannel.1 onlink"}},
		{"kernel-holds-what-is-explained", func(w world) {
			m, l := w.pause()
			w.must(m.Netlink().NeighSet(&netlink.Neigh{
				LinkIndex:    l.Attrs().Index,
				Family:       unix.AF_BRIDGE,
				State:        netlink.NUD_PERMANENT,
				Flags:        netlink.NTF_SELF,
				IP:           net.IPv4(192, 168, 200, 77),
				HardwareAddr: mac,
			}))
		}, []string{"node02 has fdb 02:00:00:00:00:77 dst 192.168.200.77 dev flannel.1"}},
		{"kernel-holds-what-is-explained", func(w world) {
			w.inject(fault.AgentPause{Node: "node02"}, fault.Tamper{Node: "node02", What: fault.NeighboursDeleted})
		}, []string{"node02 lacks neighbour 172.16."}},
		{"vtep-mac-agrees", func(w world) {
			w.inject(fault.AgentPause{Node: "node02"}, fault.Tamper{Node: "node02", What: fault.DeviceMACChanged})
		}, []string{"node02 has 02:66:66:66:66:66 as flannel.1", "node01 has fdb", "node01 has neighbour"}},
		{"subnet-file-equals-lease", func(w world) {
			m, _ := w.pause()
			w.must(os.WriteFile(m.Path(w.SubnetFile()), []byte("FLANNEL_SUBNET=172.16.252.1/24\n"), 0o644))
		}, []string{"the subnet file of node02 says FLANNEL_SUBNET=172.16.252.1/24"}},
		{"cni0-equals-subnet", func(w world) {
			nl := w.machine("node02").Netlink()
			l, err := nl.LinkByName("cni0")
			w.must(err, nl.AddrAdd(l, &netlink.Addr{IPNet: ipNet("172.16.253.1/24")}))
		}, []string{"cni0 of node02 has [", "172.16.253.1/24"}},
		{"own-subnet-stays-local", func(w world) {
			m, l := w.pause()
			own := w.PodsOn("node02")[0].Addr()
			w.must(m.Netlink().RouteAdd(&netlink.Route{
				LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK,
				Dst: ipNet(own.String() + "/32"),
			}))
		}, []string{"node02 sends a part of its own subnet", "/32 dev flannel.1"}},
		{"pod-address-once", func(w world) {
			w.give("node02", w.PodsOn("node01")[0].Addr().String()+"/24")
		}, []string{"pod node01-pod1 on node01 and pod node02-pod1 on node02 both have the address 172.16."}},
		{
			"pod-address-in-lease", func(w world) { w.give("node02", "172.16.254.9/24") },
			[]string{"pod node02-pod1 on node02 has the address 172.16.254.9"},
		},
		{"no-veth-without-pod", func(w world) {
			w.must(w.machine("node01").Netlink().LinkAdd(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: "vethlost"}, PeerName: "vethlost2",
			}))
		}, []string{"veth vethlost on node01", "veth vethlost2 on node01"}},
		{
			"no-reservation-without-pod", func(w world) { w.must(w.PodsOn("node01")[0].Vanish()) },
			[]string{"node01 has 172.16.", "for container node01-pod1, which is not there"},
		},
		{
			"no-rule-twice", func(w world) { w.repeatRule("node02") },
			[]string{"chain forward of nftables table ip nemesh-overlay on node02"},
		},
		{"agent-alive", func(w world) {
			a, err := w.Agent("node01")
			w.must(err, syscall.Kill(a.Pid(), syscall.SIGSEGV))
			<-a.Exited()
		}, []string{"the agent on node01 has ended though nobody told it to: exit status 2"}},
	}
}

// give gives a node's pod one more address.
func (w world) give(name, address string) {
	nl, err := netlink.NewHandleAt(w.PodsOn(name)[0].NetNS)
	w.must(err)
	defer nl.Close()
	l, err := nl.LinkByName("eth0")
	w.must(err, nl.AddrAdd(l, &netlink.Addr{IPNet: ipNet(address)}))
}

// repeatRule appends the first rule of the overlay's forward chain once more, as an agent does that adds its
// rules at every start.
func (w world) repeatRule(name string) {
	m, _ := w.pause()
	if m.Name() != name {
		w.t.Fatalf("%s is not paused", name)
	}
	conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
	w.must(err)
	chains, err := conn.ListChains()
	w.must(err)
	for _, c := range chains {
		if c.Name != "forward" {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		w.must(err)
		conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: rules[0].Exprs})
		w.must(conn.Flush())
		return
	}
	w.t.Fatal("there is no chain called forward")
}

func ipNet(text string) *net.IPNet {
	ip, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err) // text is a constant of this file, or an address that was read
	}
	return &net.IPNet{IP: ip, Mask: n.Mask}
}

// becomesRed waits until an invariant is violated with the words wanted.
func becomesRed(ctx context.Context, t *testing.T, k *checker.Checker, id string, want []string) {
	t.Helper()
	v, err := checker.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		s, err := k.Snapshot(ctx)
		text := strings.Join(v.Check(s), "\n")
		missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.Contains(text, w) })
		if err == nil && len(missing) == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s lacks %q (%v):\n%s", id, missing, err, text)
		}
	}
}

// TestEveryInvariantIsSeenBroken breaks each in a world of its own and sees it red.
func TestEveryInvariantIsSeenBroken(t *testing.T) {
	for _, b := range brokenWorlds() {
		t.Run(b.id, func(t *testing.T) {
			c := newWorld(t, cluster.Options{Agent: ours(), Nodes: 2})
			s, err := c.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v, err := checker.Find(b.id)
			if wrong := v.Check(s); err != nil || len(wrong) > 0 {
				t.Fatalf("before anything is broken: %q (%v)", wrong, err)
			}
			b.do(c)
			becomesRed(t.Context(), t, c.Checker, b.id, b.want)
		})
	}
}

// talker is our overlay with an agent that says more before it works.
type talker struct {
	driver.Ours
	says string
}

func (d talker) Command(s driver.Spec) node.Command {
	c := d.Ours.Command(s)
	c.Args = append([]string{"-c", d.says + `; exec "$0" "$@"`, c.Path}, c.Args...)
	c.Path = "/bin/sh"
	return c
}

func TestOutputOfAgentsIsJudged(t *testing.T) {
	for id, c := range map[string]struct{ says, want string }{
		"no-panic":       {"echo 'panic: made up'", "the agent on node01 panicked: panic: made up"},
		"no-data-race":   {"echo 'WARNING: DATA RACE'", "the agent on node01 has a data race: WARNING: DATA RACE"},
		"log-is-bounded": {"seq 1 1000", "the agent on node01 wrote 10"},
	} {
		t.Run(id, func(t *testing.T) {
			cl := newWorld(t, cluster.Options{Agent: talker{ours(), c.says}, Nodes: 1})
			becomesRed(t.Context(), t, cl.Checker, id, []string{c.want})
		})
	}
}

func TestAtRestAllHoldsAndPeersAreLearned(t *testing.T) {
	c := newWorld(t, cluster.Options{Agent: ours(), Nodes: 3, Idle: []string{"node03"}})
	if err := c.StartMesh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Inject(t.Context(), fault.AgentKill{Node: "node02"}, fault.EtcdPause{}); err != nil {
		t.Fatal(err)
	}
	results, err := c.AtRest(t.Context())
	if err != nil || len(results) != len(checker.All())-1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if text := checker.Failures(results); text != "" {
		t.Error(text)
	}
	if s := c.Summary(); len(s.Active) > 0 || len(s.Report.Pairs) == 0 || c.Closed() {
		t.Errorf("%+v", s)
	}
}

// TestAnAgentThatHangsMakesNoProgress pauses one agent, which is alive and whose kernel is right.
func TestAnAgentThatHangsMakesNoProgress(t *testing.T) {
	c := newWorld(t, cluster.Options{Agent: ours(), Nodes: 2})
	agent, err := c.Agent("node02")
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Pause(); err != nil {
		t.Fatal(err)
	}
	results, err := c.AtRest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := checker.Failures(results)
	if !strings.Contains(
		text,
		"agent-makes-progress: 2s after subnets/172.16.0.0-24 of 192.168.200.2 was put",
	) ||
		!strings.Contains(text, "node02 lacks: route 172.16.0.0/24") ||
		strings.Contains(text, "node01") ||
		strings.Count(text, "\n") > 0 {
		t.Errorf("got %q", text)
	}
}

func TestWaiversOfACluster(t *testing.T) {
	c := newWorld(t, cluster.Options{Agent: ours(), Nodes: 1})
	if err := c.Waive(
		"no-such-thing",
		"why",
	); err == nil ||
		!strings.Contains(err.Error(), "cni0-equals-subnet") {
		t.Errorf("an unknown id: %v", err)
	}
	if err := c.Waive("no-veth-without-pod", ""); err == nil {
		t.Error("a waiver without a reason was taken")
	}
	c.must(c.Waive("no-veth-without-pod", "it is made here"), c.Waive("no-panic", "without need"),
		c.machine("node01").Netlink().LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "vethlost"}, PeerName: "vethlost2",
		}))
	began := time.Now()
	results, err := c.AtRest(t.Context())
	if err != nil || checker.Failures(results) != "" {
		t.Errorf("%s (%v)", checker.Failures(results), err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a waived invariant was waited for: %s", took)
	}
	for _, r := range results {
		if r.ID == "no-veth-without-pod" && (r.OK || !r.Waived) || r.ID == "no-panic" && (!r.OK || !r.Waived) {
			t.Errorf("%+v", r)
		}
	}
}

// TestWhatIsLeftIsFound holds a namespace of a cluster over its end.
func TestWhatIsLeftIsFound(t *testing.T) {
	k, err := checker.New()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(t.Context(), cluster.Options{Agent: ours(), Nodes: 1}, nil, k.Watch)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Machine("node01")
	if err != nil {
		t.Fatal(err)
	}
	var held *os.File
	err = m.Do(func() (err error) {
		held, err = os.Open(filepath.Join("/proc", "thread-self", "ns", "net"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = k.Close()
	held.Close()
	if err == nil ||
		!strings.Contains(err.Error(), "nothing-left: the closed world has left the namespace net:[") ||
		!strings.Contains(err.Error(), "of node01, held by /proc/self/fd/") {
		t.Errorf("got %v", err)
	}
}
