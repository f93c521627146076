package kernel

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// A comparison reads a list from the kernel for each part of the plan. On a busy node most events do not
// concern the overlay: neighbours of pods age, links and routes come and go with pods, and the reconciler's
// own writes are reported too. So each event is checked against the plan, and only the parts that it
// concerns are compared. An event that reports an object as planned needs no comparison, whoever made the
// change. The last event of each object decides.

// part is one of the lists that a comparison compares, or several of them.
type part uint8

const (
	// partLinks are the devices and what hangs on them: a link that changes may take all the rest along.
	partLinks part = 1 << iota
	partSysctls
	partRules
	partPeers // neighbours and forwarding entries
	partRoutes
	allParts = partLinks | partSysctls | partRules | partPeers | partRoutes
)

// concern is what may differ after an event: parts of the plan, and the choice of the uplink.
type concern struct {
	parts  part
	uplink bool
}

func (c concern) and(o concern) concern {
	return concern{parts: c.parts | o.parts, uplink: c.uplink || o.uplink}
}

// expectation is a plan by its objects, and the indices that its links have in the kernel.
type expectation struct {
	want       plan.State
	links      map[int]string
	neighbours map[neighbourKey]lease.MAC
	fdb        map[fdbKey]netip.Addr
	routes     map[netip.Prefix]plan.Route
	blackholes map[netip.Prefix]bool
}

type neighbourKey struct {
	link string
	ip   netip.Addr
}

type fdbKey struct {
	link string
	mac  lease.MAC
}

func expect(want plan.State, links map[string]netlink.Link) *expectation {
	e := &expectation{
		want: want, links: map[int]string{}, neighbours: map[neighbourKey]lease.MAC{},
		fdb: map[fdbKey]netip.Addr{}, routes: map[netip.Prefix]plan.Route{}, blackholes: map[netip.Prefix]bool{},
	}
	for name, l := range links {
		e.links[l.Attrs().Index] = name
	}
	for _, n := range want.Neighbours {
		e.neighbours[neighbourKey{n.Link, n.IP}] = n.MAC
	}
	for _, f := range want.FDB {
		e.fdb[fdbKey{f.Link, f.MAC}] = f.Dst
	}
	for _, r := range want.Routes {
		e.routes[r.Dst] = r
	}
	for _, b := range want.Blackholes {
		e.blackholes[b] = true
	}
	return e
}

// of returns what one message of the kernel concerns. A message that cannot be read concerns everything.
func (e *expectation) of(m syscall.NetlinkMessage) concern {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return e.link(m.Data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return e.address(m.Data)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return concern{parts: e.neighbour(m.Data, m.Header.Type == unix.RTM_DELNEIGH)}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return e.route(m.Data, m.Header.Type == unix.RTM_DELROUTE)
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return concern{parts: e.netconf(m.Data)}
	case unix.RTM_GETNEIGH: // a question to user space, not a change
		return concern{}
	}
	return everything
}

var everything = concern{parts: allParts, uplink: true}

// link: the plan's links may take all that is on them along; others may be a better uplink.
func (e *expectation) link(data []byte) concern {
	l, err := netlink.LinkDeserialize(nil, data)
	if err != nil {
		return everything
	}
	name, known := e.links[l.Attrs().Index]
	if !known {
		name = l.Attrs().Name
	}
	switch {
	case e.ours(name):
		return concern{parts: allParts}
	case name == e.want.Uplink:
		return everything
	}
	return concern{uplink: true}
}

// ours reports whether the plan has a device of that name.
func (e *expectation) ours(name string) bool {
	for _, d := range e.want.Devices {
		if d.Name == name {
			return true
		}
	}
	return false
}

// address: one that goes takes routes along without an event of their own (net/ipv4/fib_frontend.c).
func (e *expectation) address(data []byte) concern {
	if len(data) < unix.SizeofIfAddrmsg {
		return everything
	}
	head := nl.DeserializeIfAddrmsg(data)
	c := concern{uplink: head.Scope == unix.RT_SCOPE_UNIVERSE}
	if name, known := e.links[int(head.Index)]; known {
		c = concern{parts: allParts, uplink: name == e.want.Uplink}
	}
	return c
}

func (e *expectation) neighbour(data []byte, gone bool) part {
	n, err := netlink.NeighDeserialize(data)
	if err != nil {
		return partPeers
	}
	link, known := e.links[n.LinkIndex]
	if !known || link == e.want.Uplink {
		return 0
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	addr = addr.Unmap()
	permanent := n.State&netlink.NUD_PERMANENT != 0
	var planned, as bool
	if n.Family == unix.AF_BRIDGE {
		var dst netip.Addr
		dst, planned = e.fdb[fdbKey{link, toMAC(n.HardwareAddr)}]
		as = dst == vtepOf(n, data)
	} else {
		var mac lease.MAC
		mac, planned = e.neighbours[neighbourKey{link, addr}]
		as = mac == toMAC(n.HardwareAddr)
	}
	return doubt(partPeers, planned, planned && as && permanent, !permanent, gone)
}

// doubt returns p if an event of one object needs a comparison: a planned object is gone, or one is there
// that is not as planned. A minor object, one of the kernel's own, matters only in the place of a planned
// one.
func doubt(p part, planned, as, minor, gone bool) part {
	if gone && planned || !gone && !as && (planned || !minor) {
		return p
	}
	return 0
}

func (e *expectation) route(data []byte, gone bool) concern {
	if len(data) < unix.SizeofRtMsg {
		return everything
	}
	head := nl.DeserializeRtMsg(data)
	attrs, err := nl.ParseRouteAttrAsMap(data[head.Len():])
	if err != nil {
		return everything
	}
	number := func(kind uint16, otherwise uint32) uint32 {
		if a, ok := attrs[kind]; ok && len(a.Value) >= 4 {
			return binary.NativeEndian.Uint32(a.Value)
		}
		return otherwise
	}
	if number(unix.RTA_TABLE, uint32(head.Table)) != unix.RT_TABLE_MAIN {
		return concern{}
	}
	to, ok := netip.AddrFromSlice(attrs[unix.RTA_DST].Value)
	if !ok { // the default route, on which the choice of the uplink may rest
		return concern{uplink: true}
	}
	dst := netip.PrefixFrom(to, int(head.Dst_len))
	if !within(e.want.Networks, dst) && !within(e.want.Former, dst) {
		return concern{uplink: true}
	}
	if head.Type == unix.RTN_BLACKHOLE {
		return concern{parts: doubt(partRoutes, e.blackholes[dst], e.blackholes[dst], false, gone)}
	}
	planned, isPlanned := e.routes[dst]
	via, _ := netip.AddrFromSlice(attrs[unix.RTA_GATEWAY].Value)
	link, known := e.links[int(number(unix.RTA_OIF, 0))]
	metric := number(unix.RTA_PRIORITY, 0)
	there := plan.Route{Dst: dst, Via: via, Link: link, Onlink: head.Flags&unix.RTNH_F_ONLINK != 0}
	as := isPlanned && there == planned && plainRoute(dst, int(metric), int(head.Tos)) &&
		head.Type == unix.RTN_UNICAST
	for _, more := range []uint16{unix.RTA_METRICS, unix.RTA_PREFSRC, unix.RTA_ENCAP, unix.RTA_MULTIPATH} {
		_, changed := attrs[more]
		as = as && !changed
	}
	return concern{parts: doubt(partRoutes, isPlanned, as, !known, gone)}
}

// netconf: what holds for all links, or for one of the plan's (linux/netconf.h).
func (e *expectation) netconf(data []byte) part {
	const sizeofNetconfmsg, netconfaIfindex = 4, 1
	if len(data) < sizeofNetconfmsg {
		return partSysctls
	}
	attrs, err := nl.ParseRouteAttrAsMap(data[sizeofNetconfmsg:])
	if raw := attrs[netconfaIfindex].Value; err == nil && len(raw) == 4 {
		index := int(int32(binary.NativeEndian.Uint32(raw)))
		if _, known := e.links[index]; index > 0 && !known {
			return 0
		}
	}
	return partSysctls
}

// changes tells which parts two plans differ in.
func changes(a, b plan.State) part {
	var p part
	if a.Uplink != b.Uplink || !equal(a.Devices, b.Devices) || !equal(a.Addrs, b.Addrs) ||
		!equal(a.Networks, b.Networks) || !equal(a.Former, b.Former) ||
		!equal(a.FormerRoutes, b.FormerRoutes) || !equal(a.FormerDevices, b.FormerDevices) {
		return allParts
	}
	if !equal(a.Sysctls, b.Sysctls) {
		p |= partSysctls
	}
	if !equal(a.Rules, b.Rules) {
		p |= partRules
	}
	if !equal(a.Neighbours, b.Neighbours) || !equal(a.FDB, b.FDB) {
		p |= partPeers
	}
	if !equal(a.Routes, b.Routes) || !equal(a.Blackholes, b.Blackholes) {
		p |= partRoutes
	}
	return p
}

// equal compares in any order, since plans follow the order in which leases came.
func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	count := make(map[T]int, len(a))
	for _, v := range a {
		count[v]++
	}
	for _, v := range b {
		if count[v] == 0 {
			return false
		}
		count[v]--
	}
	return true
}
