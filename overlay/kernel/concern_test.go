package kernel

import (
	"errors"
	"log/slog"
	"net"
	"reflect"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// concerns returns what the events concern that an action causes in a namespace which is to hold a plan.
func (h host) concerns(want plan.State, act func() error) concern {
	h.tb.Helper()
	socket, err := nl.SubscribeAt(h.handle, h.handle, unix.NETLINK_ROUTE, groups...)
	must(h.tb, err)
	defer socket.Close()
	must(h.tb, act())
	must(h.tb, socket.SetReceiveTimeout(&unix.Timeval{Usec: 20_000})) // what it causes has been queued by then
	e := expect(want, map[string]netlink.Link{"flannel.1": h.link("flannel.1"), "eth0": h.link("eth0")})
	var all concern
	for heard := false; ; heard = true {
		messages, _, err := socket.Receive()
		if errors.Is(err, unix.EAGAIN) {
			if !heard {
				h.tb.Fatal("the action caused no event")
			}
			return all
		}
		must(h.tb, err)
		for _, m := range messages {
			all = all.and(e.of(m))
		}
	}
}

// withoutIPv6 keeps the kernel from giving links addresses and routes of their own, at some moment
// within a second (RFC 4862), whose events nobody caused.
func (h host) withoutIPv6() {
	h.tb.Helper()
	must(h.tb, ns.Do(h.handle, func() error {
		for _, links := range []string{"default", "all"} {
			if err := writeSysctl("net/ipv6/conf/"+links+"/disable_ipv6", "1"); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestWhatAnEventConcerns(t *testing.T) {
	device := func(h host) int { return h.link("flannel.1").Attrs().Index }
	age := func(h host, ip net.IP) error {
		return h.nl.NeighSet(&netlink.Neigh{
			LinkIndex: device(h), IP: ip, State: netlink.NUD_STALE,
			HardwareAddr: net.HardwareAddr{2, 8, 8, 8, 8, 8},
		})
	}
	for name, c := range map[string]struct {
		act  func(h host, s plan.State) error
		want concern
	}{
		"a pod's link": {func(h host, _ plan.State) error {
			return h.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth1"}, PeerName: "veth2"})
		}, concern{uplink: true}},
		"a neighbour on the uplink": {func(h host, _ plan.State) error {
			return h.nl.NeighSet(&netlink.Neigh{
				LinkIndex: h.link("eth0").Attrs().Index, IP: net.IP{192, 168, 0, 9},
				HardwareAddr: net.HardwareAddr{2, 7, 7, 7, 7, 7}, State: netlink.NUD_STALE,
			})
		}, concern{}},
		"a neighbour that the kernel resolved itself": {func(h host, _ plan.State) error {
			return age(h, net.IP{10, 5, 200, 0})
		}, concern{}},
		"a planned neighbour made to age": {func(h host, s plan.State) error {
			return age(h, s.Neighbours[0].IP.AsSlice())
		}, concern{parts: partPeers}},
		"a planned neighbour deleted": {func(h host, s plan.State) error {
			return h.nl.NeighDel(neighbourEntry(device(h), s.Neighbours[0]))
		}, concern{parts: partPeers}},
		"a permanent neighbour that is not planned": {func(h host, s plan.State) error {
			s.Neighbours[0].IP = s.Neighbours[0].IP.Next()
			return h.nl.NeighSet(neighbourEntry(device(h), s.Neighbours[0]))
		}, concern{parts: partPeers}},
		"a forwarding entry elsewhere": {func(h host, s plan.State) error {
			s.FDB[0].Dst = s.FDB[0].Dst.Next()
			return h.nl.NeighSet(fdbEntry(device(h), s.FDB[0]))
		}, concern{parts: partPeers}},
		"a forwarding entry deleted": {func(h host, s plan.State) error {
			return h.nl.NeighDel(fdbEntry(device(h), s.FDB[0]))
		}, concern{parts: partPeers}},
		"a route deleted": {func(h host, s plan.State) error {
			return h.nl.RouteDel(&netlink.Route{Dst: toIPNet(s.Routes[0].Dst)})
		}, concern{parts: partRoutes}},
		"a second route with another metric": {func(h host, s plan.State) error {
			r := routeEntry(s.Routes[0], map[string]netlink.Link{"flannel.1": h.link("flannel.1")})
			r.Priority = 7
			return h.nl.RouteAdd(r)
		}, concern{parts: partRoutes}},
		"a route that is not planned, inside the network": {func(h host, _ plan.State) error {
			return h.nl.RouteAdd(&netlink.Route{Dst: cidr("10.5.99.0/24"), LinkIndex: device(h)})
		}, concern{parts: partRoutes}},
		"a route elsewhere": {func(h host, _ plan.State) error {
			return h.nl.RouteAdd(&netlink.Route{Dst: cidr("10.99.0.0/24"), Gw: net.IP{192, 168, 0, 9}})
		}, concern{uplink: true}},
		"a black hole that is not planned": {func(h host, _ plan.State) error {
			return h.nl.RouteAdd(&netlink.Route{Dst: cidr("10.5.0.0/16"), Type: unix.RTN_BLACKHOLE})
		}, concern{parts: partRoutes}},
		"forwarding off": {func(h host, _ plan.State) error {
			return ns.Do(h.handle, func() error { return writeSysctl("net/ipv4/ip_forward", "0") })
		}, concern{parts: partSysctls}},
		"the device's MTU": {func(h host, _ plan.State) error {
			return h.nl.LinkSetMTU(h.link("flannel.1"), 1300)
		}, concern{parts: allParts}},
		"the uplink down": {func(h host, _ plan.State) error {
			return h.nl.LinkSetDown(h.link("eth0"))
		}, everything},
		"an address on the device": {func(h host, _ plan.State) error {
			return h.nl.AddrAdd(h.link("flannel.1"), &netlink.Addr{IPNet: cidr("10.5.77.0/32")})
		}, concern{parts: allParts}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.withoutIPv6()
			h.apply(state(2))
			for _, name := range []string{"eth0", "far"} { // the kernel tells of the carrier when it gets to it
				h.eventually(name+" has its carrier", func() bool {
					return h.link(name).Attrs().OperState == netlink.OperUp
				})
			}
			if got := h.concerns(state(2), func() error { return c.act(h, state(2)) }); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// What a pass writes comes back as events, and must not cause another.
func TestOwnEchoConcernsNothing(t *testing.T) {
	h := newHost(t)
	few, many := state(2), state(20)
	many.Blackholes = append(many.Blackholes, many.Networks[0])
	h.apply(few)
	for _, s := range []plan.State{many, few} {
		if got := h.concerns(s, func() error { h.apply(s); return nil }); got != (concern{}) {
			t.Errorf("%d peers: %+v", len(s.FDB), got)
		}
	}
}

func TestPartsInWhichPlansDiffer(t *testing.T) {
	turned := state(3)
	turned.Routes[0], turned.Routes[2] = turned.Routes[2], turned.Routes[0]
	for name, c := range map[string]struct {
		change func(s *plan.State)
		want   part
	}{
		"nothing":                    {func(*plan.State) {}, 0},
		"their order":                {func(s *plan.State) { *s = turned }, 0},
		"a peer more":                {func(s *plan.State) { *s = state(4) }, partPeers | partRoutes},
		"a route twice, another not": {func(s *plan.State) { s.Routes[1] = s.Routes[0] }, partRoutes},
		"rules":                      {func(s *plan.State) { s.Rules[0].Masquerade = false }, partRules},
		"sysctls":                    {func(s *plan.State) { s.Sysctls = nil }, partSysctls},
		"the MAC":                    {func(s *plan.State) { s.Devices[0].MAC = lease.MAC{2, 3} }, allParts},
	} {
		s := state(3)
		c.change(&s)
		if got := changes(state(3), s); got != c.want {
			t.Errorf("%s: got %b, want %b", name, got, c.want)
		}
	}
}

// Whatever is added to a plan must be told apart, too.
func TestEveryFieldOfAPlanCounts(t *testing.T) {
	for i, typ := 0, reflect.TypeFor[plan.State](); i < typ.NumField(); i++ {
		var s plan.State
		if f := reflect.ValueOf(&s).Elem().Field(i); f.Kind() == reflect.String {
			f.SetString("changed")
		} else {
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		}
		if changes(plan.State{}, s) == 0 {
			t.Errorf("two plans that differ in %s only count as the same", typ.Field(i).Name)
		}
	}
}

// While something is not as planned, any event may be what it waits for.
func TestAnyEventCountsWhileFailing(t *testing.T) {
	r, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	r.heard(concern{})
	if due := r.take(); due != (concern{}) {
		t.Fatalf("got %+v", due)
	}
	r.report(nil, errors.New("no such device"))
	r.heard(concern{})
	if due := r.take(); due.parts != allParts {
		t.Fatalf("got %+v", due)
	}
}
