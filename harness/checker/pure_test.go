package checker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/observe"
)

var (
	at   = time.Date(2026, 8, 14, 12, 0, 0, 0, time.UTC)
	addr = netip.MustParseAddr
	pfx  = netip.MustParsePrefix
)

type (
	lease = flannelkeys.Lease
	owner = flannelkeys.Owner
	route = observe.Route
)

// leaseOf is that of the nth node of the world below.
func leaseOf(n int) lease {
	return lease{
		Subnet: pfx(fmt.Sprintf("10.5.%d.0/24", n)), PublicIP: addr(fmt.Sprintf("192.168.0.%d", n)),
		Backend: "vxlan", VNI: 1, VtepMAC: fmt.Sprintf("02:00:00:00:00:%02x", n),
	}
}

// learn gives a node's kernel the entries of a peer.
func learn(n *Node, l lease) {
	vtep := l.Subnet.Addr()
	n.Routes = append(n.Routes, route{Dst: l.Subnet, Via: vtep, Device: n.Device, OnLink: true})
	n.Neighbours = append(n.Neighbours, observe.Neighbour{IP: vtep, MAC: l.VtepMAC, Device: n.Device})
	n.FDB = append(n.FDB, observe.Neighbour{IP: l.PublicIP, MAC: l.VtepMAC, Device: n.Device})
}

// routed makes the world one of host-gw: routes by way of the peers' own addresses, no device, no MACs.
func routed(s *Snapshot) {
	s.Backend, s.Join.Peer.Backend = HostGW, HostGW
	for i := range s.Leases {
		s.Leases[i].Backend, s.Leases[i].VNI, s.Leases[i].VtepMAC = HostGW, 0, ""
		s.Owners[i].Lease = s.Leases[i]
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.MAC, n.Neighbours, n.FDB = "", nil, nil
		for j, r := range n.Routes {
			for _, l := range s.Leases {
				if r.OnLink && r.Dst == l.Subnet {
					n.Routes[j] = route{Dst: r.Dst, Via: l.PublicIP, Device: n.Uplink}
				}
			}
		}
	}
}

// world is three nodes at rest, with a pod each.
func world() Snapshot {
	s := Snapshot{At: at, Network: pfx("10.5.0.0/16"), SubnetLen: 24, Backend: VXLAN, VNI: 1, Hold: time.Hour}
	for i := 1; i <= 3; i++ {
		l := leaseOf(i)
		gateway := netip.PrefixFrom(l.Subnet.Addr().Next(), 24)
		pod := Pod{Name: fmt.Sprintf("pod%d", i), Addrs: []netip.Addr{gateway.Addr().Next()}, Peer: 7}
		n := Node{
			Name: fmt.Sprintf("node0%d", i), Addrs: []netip.Addr{l.PublicIP}, Uplink: "eth0", Device: "flannel.1",
			MAC: l.VtepMAC, Gateway: gateway, HasBridge: true, Bridge: []netip.Prefix{gateway},
			Routes: []route{{Dst: l.Subnet, Device: "cni0"}, {Dst: pfx("192.168.0.0/24"), Device: "eth0"}},
			Veths:  []observe.Link{{Name: "veth1", Index: 7}}, Pods: []Pod{pod},
			Reservations: []Reservation{{"overlay", pod.Addrs[0], pod.Name}},
			Rules: []observe.Rule{{
				Family: "ip", Table: "nemesh-overlay", Chain: "forward", Handle: 4,
				Text: "accept", Exact: "accept 10.5.0.0/16",
			}},
			Agent: Agent{Running: true, Records: true, Lines: 20, Age: 10 * time.Second},
		}
		for j := 1; j <= 3; j++ {
			if j != i {
				learn(&n, leaseOf(j))
			}
		}
		s.Leases = append(s.Leases, l)
		s.Owners = append(s.Owners, owner{Lease: l, Ends: at.Add(time.Minute)})
		s.Nodes = append(s.Nodes, n)
	}
	s.Join = &Join{Peer: leaseOf(9), Within: 2 * time.Second, Reactions: []Reaction{{Node: "node01"}}}
	return s
}

func TestEveryInvariantHasAnIDAndAStatement(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range All() {
		if seen[v.ID] || strings.ToLower(v.ID) != v.ID || strings.ContainsAny(v.ID, " _.") {
			t.Errorf("id %q", v.ID)
		}
		seen[v.ID] = true
		if !strings.HasSuffix(v.Statement, ".") || v.Check == nil {
			t.Errorf("%s: %q", v.ID, v.Statement)
		}
	}
	if _, err := Find(
		"cni0-equal-subnet",
	); err == nil ||
		!strings.Contains(err.Error(), "cni0-equals-subnet,") {
		t.Errorf("an unknown id: %v", err)
	}
}

// judged lists the ids that a snapshot violates, and all sentences.
func judged(s Snapshot) (ids []string, text string) {
	for _, v := range All() {
		if wrong := v.Check(s); len(wrong) > 0 {
			ids = append(ids, v.ID)
			text += strings.Join(wrong, "\n") + "\n"
		}
	}
	return ids, text
}

func TestWhatIsNoViolation(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){
		"rest": func(*Snapshot) {},
		"a stopped agent's kernel and files": func(s *Snapshot) {
			n := &s.Nodes[0]
			n.Agent = Agent{Told: true}
			n.Routes, n.FDB, n.MAC, n.Gateway = nil, nil, "", netip.Prefix{}
			n.Bridge = nil
			n.Neighbours = []observe.Neighbour{
				{IP: addr("10.5.77.0"), MAC: "02:00:00:00:00:77", Device: "flannel.1"},
			}
		},
		"an owner's record inside its hold": func(s *Snapshot) {
			s.Owners = append(s.Owners, owner{Lease: leaseOf(8), Ends: at.Add(-30 * time.Minute)})
			for i := range s.Nodes {
				learn(&s.Nodes[i], leaseOf(8))
			}
		},
		"an owner's record that flannel does not follow": func(s *Snapshot) {
			s.Owners = append(s.Owners, owner{Lease: leaseOf(8), Ends: at})
			for i := range s.Nodes {
				s.Nodes[i].Agent.Records = false
			}
		},
		"the record of a node that has moved": func(s *Snapshot) {
			old := leaseOf(1)
			old.Subnet = pfx("10.5.50.0/24")
			s.Owners = append(s.Owners, owner{Lease: old, Ends: at})
		},
		"a network without a device": routed,
		"leases that cannot be right": func(s *Snapshot) {
			for i, change := range []func(*lease){
				func(l *lease) { l.Backend = "udp" }, func(l *lease) { l.VNI = 9 },
				func(l *lease) { l.VtepMAC = "01:00:5e:00:00:01" }, func(l *lease) { l.VtepMAC = "" },
				func(l *lease) { l.Subnet = pfx("10.77.0.0/24") },
				func(l *lease) { l.PublicIP = addr("224.0.0.9") },
			} {
				l := leaseOf(60 + i)
				change(&l)
				s.Leases = append(s.Leases, l)
			}
		},
		"an agent that waits for a subnet when none is free": func(s *Snapshot) {
			s.SubnetLen, s.Network = 24, pfx("10.5.0.0/22")
			s.Nodes = append(s.Nodes, Node{
				Name: "node04", Addrs: []netip.Addr{addr("192.168.0.4")},
				Agent: Agent{Running: true},
			})
		},
		"an administrator's address on cni0 and route elsewhere": func(s *Snapshot) {
			s.Nodes[0].Bridge = append(s.Nodes[0].Bridge, pfx("172.30.0.1/24"))
			s.Nodes[0].Routes = append(s.Nodes[0].Routes,
				route{Dst: pfx("172.31.0.0/24"), Via: addr("192.168.0.1"), Device: "eth0"})
		},
		"two rules that read the same and do not do the same": func(s *Snapshot) {
			r := s.Nodes[0].Rules[0]
			r.Handle, r.Exact = 9, "accept 10.6.0.0/16"
			s.Nodes[0].Rules = append(s.Nodes[0].Rules, r)
		},
		"the same rule in two chains": func(s *Snapshot) {
			r := s.Nodes[0].Rules[0]
			r.Chain = "FORWARD"
			s.Nodes[0].Rules = append(s.Nodes[0].Rules, r)
		},
		"a route for the whole network beside the bridge's": func(s *Snapshot) {
			s.Nodes[0].Agent.Running, s.Nodes[0].Agent.Told = false, true
			s.Nodes[0].Routes = append(s.Nodes[0].Routes, route{Dst: pfx("10.5.0.0/16"), Device: "flannel.1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := world()
			change(&s)
			if ids, text := judged(s); len(ids) > 0 {
				t.Errorf("%v:\n%s", ids, text)
			}
		})
	}
}

func TestViolationsNameWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		id     string
		also   []string
		change func(*Snapshot)
		want   []string
	}{
		{"one-lease-per-node", nil, func(s *Snapshot) {
			l := leaseOf(1)
			l.Subnet, l.VtepMAC = pfx("10.5.90.0/24"), ""
			s.Leases = append(s.Leases, l)
		}, []string{"192.168.0.1", "2 leases", "subnets/10.5.1.0-24", "subnets/10.5.90.0-24"}},
		{"one-lease-per-node", nil, func(s *Snapshot) {
			s.Nodes = append(s.Nodes, Node{
				Name: "node04", Addrs: []netip.Addr{addr("192.168.0.4")},
				Agent: Agent{Running: true},
			})
		}, []string{"node04", "192.168.0.4", "no lease"}},
		{"leases-do-not-overlap", nil, func(s *Snapshot) {
			l := leaseOf(4)
			l.Subnet = pfx("10.5.1.128/25")
			l.Backend = "other"
			s.Leases = append(s.Leases, l)
		}, []string{"10.5.1.0-24 of 192.168.0.1", "10.5.1.128-25 of 192.168.0.4"}},
		{
			"kernel-holds-what-is-explained", nil, func(s *Snapshot) { s.Nodes[0].Routes = s.Nodes[0].Routes[:3] },
			[]string{"node01 lacks route 10.5.3.0/24 via 10.5.3.0 dev flannel.1 onlink", "subnets/10.5.3.0-24"},
		},
		{
			"kernel-holds-what-is-explained", nil,
			func(s *Snapshot) { s.Nodes[0].Neighbours = s.Nodes[0].Neighbours[:1] },
			[]string{"node01 lacks neighbour 10.5.3.0 lladdr 02:00:00:00:00:03 dev flannel.1"},
		},
		{
			"kernel-holds-what-is-explained", nil, func(s *Snapshot) { learn(&s.Nodes[1], leaseOf(77)) },
			[]string{
				"node02 has fdb 02:00:00:00:00:4d dst 192.168.0.77 dev flannel.1",
				"no lease or owner's record",
			},
		},
		{"kernel-holds-what-is-explained", nil, func(s *Snapshot) {
			s.Owners = append(s.Owners, owner{Lease: leaseOf(8), Ends: at.Add(-2 * time.Hour)})
			learn(&s.Nodes[1], leaseOf(8))
		}, []string{"node02 has route 10.5.8.0/24"}},
		{"kernel-holds-what-is-explained", nil, func(s *Snapshot) {
			s.Nodes[1].Routes = append(s.Nodes[1].Routes,
				route{Dst: pfx("10.5.88.0/24"), Via: addr("192.168.0.1"), Device: "eth0"})
		}, []string{"node02 has route 10.5.88.0/24 via 192.168.0.1 dev eth0"}},
		{"kernel-holds-what-is-explained", nil, func(s *Snapshot) {
			routed(s)
			s.Nodes[1].Routes = s.Nodes[1].Routes[:2]
		}, []string{"node02 lacks route 10.5.1.0/24 via 192.168.0.1 dev eth0, which subnets/10.5.1.0-24"}},
		{
			"vtep-mac-agrees", nil, func(s *Snapshot) { s.Nodes[2].MAC = "02:66:66:66:66:66" },
			[]string{
				"node03 has 02:66:66:66:66:66 as flannel.1", "10.5.3.0-24 publishes VtepMAC 02:00:00:00:00:03",
				"node01 has neighbour 10.5.3.0", "node01 has fdb 02:00:00:00:00:03 dst 192.168.0.3",
			},
		},
		{
			"vtep-mac-agrees",
			[]string{"kernel-holds-what-is-explained"},
			func(s *Snapshot) { s.Nodes[0].FDB[0].IP = addr("192.168.0.3") },
			[]string{"node01 has fdb 02:00:00:00:00:02 dst 192.168.0.3", "node02 at 192.168.0.2"},
		},
		{
			"vtep-mac-agrees", nil, func(s *Snapshot) { s.Nodes[0].MAC = "" },
			[]string{"node01 has no device as flannel.1"},
		},
		{"subnet-file-equals-lease", nil, func(s *Snapshot) {
			s.Nodes[0].Gateway, s.Nodes[0].HasBridge = pfx("10.5.66.1/24"), false
		}, []string{"node01", "FLANNEL_SUBNET=10.5.66.1/24", "subnets/10.5.1.0-24"}},
		{
			"subnet-file-equals-lease", nil, func(s *Snapshot) { s.Nodes[0].Gateway = netip.Prefix{} },
			[]string{"node01 has no subnet file"},
		},
		{
			"cni0-equals-subnet", nil, func(s *Snapshot) { s.Nodes[1].Bridge[0] = pfx("10.5.44.1/24") },
			[]string{"cni0 of node02 has [10.5.44.1/24]", "FLANNEL_SUBNET=10.5.2.1/24"},
		},
		{
			"cni0-equals-subnet", nil, func(s *Snapshot) { s.Nodes[1].Bridge = nil },
			[]string{"cni0 of node02 has []"},
		},
		{"own-subnet-stays-local", []string{"kernel-holds-what-is-explained"}, func(s *Snapshot) {
			s.Nodes[0].Routes[0] = route{Dst: pfx("10.5.0.0/16"), Device: "flannel.1"}
		}, []string{"node01 sends its own subnet 10.5.1.0/24 into the tunnel: route 10.5.0.0/16 dev flannel.1"}},
		{"own-subnet-stays-local", []string{"kernel-holds-what-is-explained"}, func(s *Snapshot) {
			s.Nodes[0].Routes = append(s.Nodes[0].Routes, route{Dst: pfx("10.5.1.128/25"), Device: "flannel.1"})
		}, []string{"a part of its own subnet", "10.5.1.128/25"}},
		{"own-subnet-stays-local", []string{"kernel-holds-what-is-explained"}, func(s *Snapshot) {
			s.Nodes[0].Routes[0].Metric = 5
			s.Nodes[0].Routes = append(s.Nodes[0].Routes, route{Dst: pfx("10.5.1.0/24"), Device: "flannel.1"})
		}, []string{"into the tunnel: route 10.5.1.0/24 dev flannel.1"}},
		{"pod-address-once", []string{"pod-address-in-lease", "no-reservation-without-pod"}, func(s *Snapshot) {
			s.Nodes[1].Pods[0].Addrs = s.Nodes[0].Pods[0].Addrs
		}, []string{"pod pod1 on node01 and pod pod2 on node02 both have the address 10.5.1.2"}},
		{"pod-address-in-lease", nil, func(s *Snapshot) {
			s.Nodes[0].Pods[0].Addrs = []netip.Addr{addr("10.5.1.2"), addr("10.5.55.5")}
		}, []string{"pod pod1 on node01 has the address 10.5.55.5", "subnets/10.5.1.0-24"}},
		{
			"no-veth-without-pod", nil, func(s *Snapshot) {
				s.Nodes[0].Veths = append(s.Nodes[0].Veths,
					observe.Link{Name: "veth9", Index: 9})
			},
			[]string{"veth veth9 on node01"},
		},
		{"no-reservation-without-pod", nil, func(s *Snapshot) {
			s.Nodes[0].Reservations[0].Container = "gone"
		}, []string{"node01 has 10.5.1.2 reserved in network overlay for container gone"}},
		{"no-reservation-without-pod", nil, func(s *Snapshot) {
			s.Nodes[0].Reservations[0].Addr = addr("10.5.1.9")
		}, []string{"10.5.1.9", "container pod1, which has [10.5.1.2]"}},
		{"no-rule-twice", nil, func(s *Snapshot) {
			r := s.Nodes[0].Rules[0]
			r.Handle = 9
			s.Nodes[0].Rules = append(s.Nodes[0].Rules, r)
		}, []string{"chain forward of nftables table ip nemesh-overlay on node01", "handles 4 and 9"}},
		{
			"agent-alive", nil,
			func(s *Snapshot) { s.Nodes[0].Agent = Agent{End: "exit status 0; its last line: bye"} },
			[]string{"the agent on node01 has ended though nobody told it to: exit status 0; its last line: bye"},
		},
		{
			"agent-makes-progress", nil, func(s *Snapshot) {
				s.Join.Reactions[0].Missing = Entries("flannel.1", "eth0", s.Join.Peer)[:1]
			},
			[]string{"2s after subnets/10.5.9.0-24 of 192.168.0.9 was put into etcd node01 lacks: route " +
				"10.5.9.0/24"},
		},
		{"agent-makes-progress", nil, func(s *Snapshot) {
			s.Join.Reactions[0].Stayed = Entries("flannel.1", "eth0", s.Join.Peer)[2:]
		}, []string{"was deleted from etcd node01 still has: fdb 02:00:00:00:00:09 dst 192.168.0.9"}},
		{
			"no-panic", nil, func(s *Snapshot) { s.Nodes[0].Agent.Panics = []string{"panic: nil map"} },
			[]string{"the agent on node01 panicked: panic: nil map"},
		},
		{
			"no-data-race", nil, func(s *Snapshot) { s.Nodes[0].Agent.Races = []string{"WARNING: DATA RACE"} },
			[]string{"the agent on node01 has a data race"},
		},
		{
			"log-is-bounded", nil, func(s *Snapshot) { s.Nodes[0].Agent.Lines = 201 },
			[]string{"the agent on node01 wrote 201 lines of log in 10s, which is more than 200"},
		},
		{
			"nothing-left", nil, func(s *Snapshot) { s.Left = []string{"the mount /run/nemesh/world-1/x"} },
			[]string{"has left the mount /run/nemesh/world-1/x"},
		},
	} {
		t.Run(c.id, func(t *testing.T) {
			s := world()
			c.change(&s)
			ids, text := judged(s)
			want := append(c.also, c.id)
			slices.Sort(ids)
			slices.Sort(want)
			if !slices.Equal(ids, want) {
				t.Errorf("violated are %v, want %v:\n%s", ids, want, text)
			}
			for _, words := range c.want {
				if !strings.Contains(text, words) {
					t.Errorf("want %q in:\n%s", words, text)
				}
			}
		})
	}
}

func TestWaivers(t *testing.T) {
	s := world()
	s.Left = []string{"not judged before the world is closed"}
	s.Nodes[0].Agent.Panics = []string{"1", "2", "3", "4", "5", "6", "7"}
	results := Check(s, map[string]string{"no-data-race": "no need"})
	text := Failures(results)
	if strings.Count(text, "no-panic: the agent on node01") != 5 ||
		!strings.HasSuffix(text, "no-panic: and 2 more") {
		t.Errorf("got %q", text)
	}
	results = Check(s, map[string]string{"no-panic": "it is meant to"})
	if text := Failures(results); text != "" {
		t.Errorf("waived, and still: %s", text)
	}
	for _, r := range results {
		if r.ID == NothingLeft || r.Waived != (r.ID == "no-panic") || r.OK == r.Waived {
			t.Errorf("%+v", r)
		}
		if r.Waived && (r.Why != "it is meant to" || len(r.Violations) != 7) {
			t.Errorf("%+v", r)
		}
	}
}

func TestOutputOfACrash(t *testing.T) {
	for line, want := range map[string][2]bool{
		"panic: runtime error: index out of range":           {true, false},
		"fatal error: all goroutines are asleep - deadlock!": {true, false},
		"WARNING: DATA RACE":                                 {false, true},
		`level=WARN msg="peer said: panic: not ours"`:        {false, false},
		"time=12:00 level=INFO msg=\"lease acquired\"":       {false, false},
		"panic: send on closed channel [recovered]":          {true, false},
	} {
		if got := [2]bool{Panic(line), Race(line)}; got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func TestMountsOfAWorld(t *testing.T) {
	w := NewTraces("/run/nemesh/world-1", nil)
	left := w.mounts("22 1 0:21 / /run rw - tmpfs tmpfs rw\n" +
		"30 22 0:4 net:[4026532008] /run/nemesh/world-1/node01/run/netns/p rw - nsfs nsfs rw\n" +
		"31 22 0:4 / /run/nemesh/world-12/node01 rw - tmpfs tmpfs rw\n")
	if len(left) != 1 || left[0] != "the mount /run/nemesh/world-1/node01/run/netns/p" {
		t.Errorf("%q", left)
	}
	for link, want := range map[string]uint64{"net:[4026532008]": 4026532008, "mnt:[7]": 7} {
		if got, err := inodeOf(link); err != nil || got != want {
			t.Errorf("%s: %d %v", link, got, err)
		}
	}
	for _, link := range []string{"socket:[4026532008]", "/dev/null", "net:[x]"} {
		if got, err := inodeOf(link); err == nil {
			t.Errorf("%s: %d", link, got)
		}
	}
}
