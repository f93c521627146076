package follow

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/observe"
)

// healthy is the state of two nodes with a pod each, as Explain sees it: node n is 192.168.200.20n with the
// subnet 172.16.n.0/24.
func healthy() Observation {
	o := Observation{State: map[string]observe.State{SwitchName: {Links: []observe.Link{
		{Index: 2, Name: "node01", Up: true, Carrier: true, MTU: 1500},
		{Index: 3, Name: "node02", Up: true, Carrier: true, MTU: 1500},
	}}}}
	for n := byte(1); n <= 2; n++ {
		name, pod := "node0"+string('0'+n), "pod"+string('0'+n)
		peer := 3 - n
		mac := func(n byte) string { return "0a:00:00:00:00:0" + string('0'+n) }
		vtep := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, n, 0}) }
		uplink := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 200, 200 + n}) }
		end := End{Name: pod, Addr: vtep(n).Next().Next(), Node: name, Device: "eth0"}
		if n == 1 {
			o.From = end
		} else {
			o.To = end
		}
		o.Nodes = append(o.Nodes, Node{
			Name: name, Addr: uplink(n), Bridge: "cni0", Device: "flannel.1",
			Uplink: "eth0", Port: name,
		})
		o.Leases = append(
			o.Leases,
			flannelkeys.Lease{Subnet: netip.PrefixFrom(vtep(n), 24), PublicIP: uplink(n), VtepMAC: mac(n)},
		)
		o.State[name] = observe.State{
			Links: []observe.Link{
				{Index: 2, Name: "eth0", Up: true, Carrier: true, MTU: 1500},
				{
					Index: 3, Name: "flannel.1", Type: "vxlan", Up: true, Carrier: true, MTU: 1450, MAC: mac(n), VNI: 1,
					Port: 8472,
				},
				{Index: 4, Name: "cni0", Type: "bridge", Up: true, Carrier: true, MTU: 1450, MAC: "0a:01"},
				{Index: 5, Name: "veth1", Type: "veth", Up: true, Carrier: true, MTU: 1450, Master: 4, Peer: 2},
			},
			Addresses: []observe.Address{
				{Device: "eth0", Prefix: netip.PrefixFrom(uplink(n), 24)},
				{Device: "cni0", Prefix: netip.PrefixFrom(vtep(n).Next(), 24)},
				{Device: "flannel.1", Prefix: netip.PrefixFrom(vtep(n), 32)},
			},
			Routes: []observe.Route{
				{
					Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 200, 0}), 24), Device: "eth0", Type: "unicast",
					Table: 254,
				},
				{Dst: netip.PrefixFrom(vtep(n), 24), Device: "cni0", Type: "unicast", Table: 254},
				{
					Dst:    netip.PrefixFrom(vtep(peer), 24),
					Via:    vtep(peer),
					Device: "flannel.1",
					Type:   "unicast",
					Table:  254,
				},
			},
			Neighbours: []observe.Neighbour{
				{Device: "flannel.1", IP: vtep(peer), MAC: mac(peer), State: "PERMANENT"},
				{Device: "eth0", IP: uplink(peer), MAC: "0a:03", State: "REACHABLE"},
			},
			FDB:     []observe.Neighbour{{Device: "flannel.1", MAC: mac(peer), IP: uplink(peer)}},
			Sysctls: map[string]string{"ip_forward": "1", "conf/all/rp_filter": "0"},
		}
		o.State[pod] = observe.State{
			Links: []observe.Link{
				{Index: 2, Name: "eth0", Type: "veth", Up: true, Carrier: true, MTU: 1450, MAC: "0a:02", Peer: 5},
			},
			Addresses: []observe.Address{{Device: "eth0", Prefix: netip.PrefixFrom(end.Addr, 24)}},
			Routes: []observe.Route{{
				Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: vtep(n).Next(),
				Device: "eth0", Type: "unicast", Table: 254,
			}},
			Neighbours: []observe.Neighbour{
				{Device: "eth0", IP: vtep(n).Next(), MAC: "0a:01", State: "REACHABLE"},
			},
		}
	}
	return o
}

// seenUntil puts the packet at the first n hops of a direction.
func (o *Observation) seenUntil(direction string, n int) {
	l := o.leg(direction)
	for i, s := range l.stages()[:n] {
		have := Sighting{
			Place: s.place, Device: s.device, Out: s.out, Direction: direction, Src: l.src.Addr,
			Dst: l.dst.Addr, TTL: 62, Length: 84, At: time.Unix(0, int64(i)), DstMAC: "0a:01",
		}
		switch {
		case s.kind >= uplinkOut && s.kind <= uplinkIn:
			have.Tunnel = &Tunnel{Src: l.from.Addr, Dst: l.to.Addr, Port: 8472, VNI: 1}
			have.DstMAC = l.o.Leases[l.to.Name[5]-'1'].VtepMAC
		case s.kind == tunnelOut || s.kind == tunnelIn:
			have.DstMAC = l.o.Leases[l.to.Name[5]-'1'].VtepMAC
		case s.kind >= bridgeOut:
			have.DstMAC = "0a:02"
		}
		o.Sightings = append(o.Sightings, have)
	}
}

const whole = 12 // hops of a direction

// Every cause is made in a real world in causes_test.go; here is what a world does not show on demand.
func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*Observation)
		cause    Cause
		sentence string
	}{
		"answered": {
			func(o *Observation) { o.Answered = true }, Delivered, "pod1 got its reply from pod2",
		},
		"seen nowhere and nothing wrong": {
			func(*Observation) {}, Unexplained, "request lost on pod1 at eth0: it was seen nowhere",
		},
		"could not be sent": {
			func(o *Observation) { o.SendError = "operation not permitted" }, Unexplained,
			"request lost on pod1 at eth0: it could not be sent: operation not permitted",
		},
		"nothing wrong in the middle": {
			func(o *Observation) { o.seenUntil(Request, 3) }, Unexplained,
			"request lost on node01 at cni0: it was seen there last, and nothing in the kernel's state says why it " +
				"went no further",
		},
		"seen later, not in between": {
			func(o *Observation) {
				o.seenUntil(Request, 5)
				o.Sightings = o.Sightings[4:]
			}, Unexplained,
			"request lost on node01 at eth0: it was seen there last, and nothing in the kernel's state says why it " +
				"went no further",
		},
		"no lease known": {
			func(o *Observation) {
				o.seenUntil(Request, 4)
				o.Leases = nil
				s := o.State["node01"]
				s.FDB = nil
				o.State["node01"] = s
			}, FDBMissing, "request lost on node01 at flannel.1: no FDB entry for 0a:00:00:00:00:02",
		},
		"neighbour failed": {
			func(o *Observation) {
				o.seenUntil(Request, whole)
				o.seenUntil(Reply, 3)
				s := o.State["node02"]
				s.Neighbours = []observe.Neighbour{
					{Device: "flannel.1", IP: netip.MustParseAddr("172.16.1.0"), State: "FAILED"},
				}
				o.State["node02"] = s
				for range 3 {
					o.ARP = append(o.ARP, ARP{
						Place: "node02", Device: "flannel.1", Out: true, Request: true,
						Target: netip.MustParseAddr("172.16.1.0"),
					})
				}
				o.ICMP = []ICMPError{{Reporter: netip.MustParseAddr("172.16.2.1"), Type: 3, Code: 1, Direction: Reply}}
			}, NeighbourUnresolved,
			"reply lost on node02 at flannel.1: neighbour 172.16.1.0 is FAILED (who-has unanswered 3 times); the " +
				"lease of 172.16.1.0/24 says 0a:00:00:00:00:01; ICMP host unreachable (type 3 code 1) from node02 " +
				"(172.16.2.1)",
		},
		"a rule that has gone since": {
			func(o *Observation) {
				o.seenUntil(Request, 3)
				o.Rules = []RuleVerdict{{
					Place: "node01", Direction: Request, Family: "ip", Table: "filter",
					Chain: "FORWARD", Handle: 9, Drop: true,
				}}
				o.Drops = []Drop{{Reason: "NETFILTER_DROP"}, {Reason: "NETFILTER_DROP"}}
			}, RuleDropped,
			"request dropped on node01 by the rule with handle 9, which has gone since, in chain FORWARD of " +
				"table ip filter; the kernel's drop reason: NETFILTER_DROP",
		},
		"a loose reverse path filter": {
			func(o *Observation) {
				o.seenUntil(Request, 9)
				s := o.State["node02"]
				s.Sysctls["conf/flannel.1/rp_filter"] = "2"
				s.Routes = s.Routes[:2]
				o.State["node02"] = s
			}, RPFilter,
			"request lost on node02 at flannel.1: reverse path filtering refuses the source 172.16.1.2: there is " +
				"no way back to it",
		},
		"out by the default route, of an overlay without a tunnel": {
			func(o *Observation) {
				o.Nodes[0].Device, o.Nodes[1].Device = "", ""
				o.seenUntil(Request, 5)
				s := o.State["node01"]
				s.Routes[2] = observe.Route{
					Dst: netip.MustParsePrefix("0.0.0.0/0"),
					Via: netip.MustParseAddr("192.168.200.1"), Device: "eth0", Type: "unicast", Table: 254,
				}
				o.State["node01"] = s
			}, NoRoute,
			`request lost on node01 at eth0: no route on node01 to 172.16.2.0/24: it takes "default via ` +
				`192.168.200.1 dev eth0"`,
		},
		"reply arrived and was not taken": {
			func(o *Observation) { o.seenUntil(Request, whole); o.seenUntil(Reply, whole) }, Unexplained,
			"reply lost on pod1 at eth0: it was seen there last, and nothing in the kernel's state says why it " +
				"went no further",
		},
		"node that could not be read": {
			func(o *Observation) { o.seenUntil(Request, 8); delete(o.State, "node02") }, VXLANMissing,
			"request lost on node02 at flannel.1: there is no flannel.1 on node02",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := healthy()
			c.change(&o)
			v := Explain(o)
			if v.Cause != c.cause || v.Sentence != c.sentence {
				t.Errorf("got  %s: %s\nwant %s: %s", v.Cause, v.Sentence, c.cause, c.sentence)
			}
		})
	}
}

func TestHopsOfReplyOnlyAfterRequest(t *testing.T) {
	o := healthy()
	o.seenUntil(Request, 5)
	if hops := o.Hops(); len(hops) != whole || !hops[4].Seen || hops[5].Seen {
		t.Errorf("%+v", hops)
	}
	o = healthy()
	o.seenUntil(Request, whole)
	if hops := o.Hops(); len(hops) != 2*whole || !hops[whole-1].Seen || hops[whole].Seen {
		t.Errorf("%+v", hops)
	}
}
