package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
	"github.com/nemesh/nemesh/overlay/plan"
)

// neighbours sets the forwarding entries and neighbours that are missing or wrong. It returns a function
// that removes the others, to be called when no route uses them any more.
func (p *pass) neighbours(links map[string]netlink.Link) (drop func()) {
	var drops []func()
	for _, d := range p.want.Devices {
		index := links[d.Name].Attrs().Index
		fdb, err := p.haveFDB(d.Name, index)
		if err != nil {
			p.fail(err)
			continue
		}
		setFDB, dropFDB := diff(on(p.want.FDB, d.Name, plan.FDB.Device), fdb,
			func(f plan.FDB) lease.MAC { return f.MAC })
		for _, f := range setFDB {
			p.do("fdb", fmt.Sprintf("%s leads to %s", f.MAC, f.Dst), p.nl.NeighSet(fdbEntry(index, f)))
		}
		neighbours, err := p.haveNeighbours(d.Name, index)
		if err != nil {
			p.fail(err)
			continue
		}
		setNeigh, dropNeigh := diff(on(p.want.Neighbours, d.Name, plan.Neighbour.Device), neighbours,
			func(n plan.Neighbour) netip.Addr { return n.IP })
		for _, n := range setNeigh {
			p.do("neighbour", fmt.Sprintf("%s is at %s", n.IP, n.MAC), p.nl.NeighSet(neighbourEntry(index, n)))
		}
		drops = append(drops, func() {
			for _, n := range dropNeigh {
				p.do("neighbour", "removed "+n.IP.String(), gone(p.nl.NeighDel(neighbourEntry(index, n))))
			}
			for _, f := range dropFDB {
				p.do("fdb", fmt.Sprintf("removed %s to %s", f.MAC, f.Dst), gone(p.nl.NeighDel(fdbEntry(index, f))))
			}
		})
	}
	return func() {
		for _, d := range drops {
			d()
		}
	}
}

// on keeps the values of one device.
func on[T any](all []T, device string, of func(T) string) []T {
	var some []T
	for _, v := range all {
		if of(v) == device {
			some = append(some, v)
		}
	}
	return some
}

// haveNeighbours lists the permanent neighbours of a device. Others are the kernel's own and age. One that
// is in the place of a permanent one is replaced, because this list does not have it.
func (p *pass) haveNeighbours(device string, index int) ([]plan.Neighbour, error) {
	list, err := dump(func() ([]netlink.Neigh, error) { return p.nl.NeighList(index, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list neighbours of %s: %w", device, err)
	}
	var have []plan.Neighbour
	for _, n := range list {
		addr, ok := netip.AddrFromSlice(n.IP)
		if !ok || n.Family == unix.AF_BRIDGE || n.State&netlink.NUD_PERMANENT == 0 {
			continue
		}
		have = append(have, plan.Neighbour{Link: device, IP: addr.Unmap(), MAC: toMAC(n.HardwareAddr)})
	}
	return have, nil
}

// haveFDB lists the permanent forwarding entries of a device. Learned entries, and those of the bridge that
// the device may be a port of, are not listed.
func (p *pass) haveFDB(device string, index int) ([]plan.FDB, error) {
	list, err := dump(func() ([][]byte, error) {
		request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		request.AddData(&netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(index)})
		return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	})
	if err != nil {
		return nil, fmt.Errorf("list forwarding entries of %s: %w", device, err)
	}
	var have []plan.FDB
	for _, raw := range list {
		n, err := netlink.NeighDeserialize(raw)
		if err != nil {
			return nil, fmt.Errorf("list forwarding entries of %s: %w", device, err)
		}
		if n.State&netlink.NUD_PERMANENT == 0 || n.LinkIndex != index || n.Flags&netlink.NTF_SELF == 0 {
			continue
		}
		have = append(have, plan.FDB{Link: device, MAC: toMAC(n.HardwareAddr), Dst: vtepOf(n, raw)})
	}
	return have, nil
}

// vtepOf returns the VTEP of a forwarding entry. An entry with another port, VNI or link than the device's
// gives an address that is in no plan.
func vtepOf(n *netlink.Neigh, raw []byte) netip.Addr {
	attrs, err := nl.ParseRouteAttrAsMap(raw[unix.SizeofNdMsg:])
	if err != nil {
		return netip.Addr{}
	}
	for _, other := range []uint16{netlink.NDA_PORT, netlink.NDA_VNI, netlink.NDA_IFINDEX} {
		if _, there := attrs[other]; there {
			return netip.Addr{}
		}
	}
	dst, _ := netip.AddrFromSlice(n.IP)
	return dst.Unmap()
}

func neighbourEntry(index int, n plan.Neighbour) *netlink.Neigh {
	family := netlink.FAMILY_V4
	if n.IP.Is6() {
		family = netlink.FAMILY_V6
	}
	return &netlink.Neigh{
		LinkIndex: index, Family: family, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST,
		IP: n.IP.AsSlice(), HardwareAddr: n.MAC[:],
	}
}

func fdbEntry(index int, f plan.FDB) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF,
		IP: f.Dst.AsSlice(), HardwareAddr: f.MAC[:],
	}
}

// gone turns "does not exist" into success: something else removed the object first.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// ownRoute is a route of the overlay's as the kernel has it.
type ownRoute struct {
	plan.Route
	raw netlink.Route
	// plain says that it stands where the planned one belongs; one of another metric stands beside it.
	plain bool
	// changed says that something is set besides, such as an MTU, that setting the route again takes away.
	changed bool
}

// routes sets the overlay's routes. Setting a route replaces one in one step. Surplus routes are removed
// after.
func (p *pass) routes(links map[string]netlink.Link) {
	have, err := p.haveRoutes(links)
	if err != nil {
		p.fail(err)
		return
	}
	there, wanted := map[plan.Route]bool{}, map[plan.Route]bool{}
	for _, r := range have {
		if r.plain && !r.changed {
			there[r.Route] = true
		}
	}
	for _, r := range p.want.Routes {
		wanted[r] = true
		if !there[r] {
			p.do("route", routeText(r), p.nl.RouteReplace(routeEntry(r, links)))
		}
	}
	for _, r := range have {
		if !wanted[r.Route] || !r.plain {
			p.do("route", "removed "+routeText(r.Route), gone(p.nl.RouteDel(&r.raw)))
		}
	}
}

// haveRoutes lists the routes of the main table that are the overlay's.
func (p *pass) haveRoutes(links map[string]netlink.Link) ([]ownRoute, error) {
	names := map[int]string{}
	for name, link := range links {
		names[link.Attrs().Index] = name
	}
	var have []ownRoute
	for _, family := range p.routeFamilies() {
		filter := &netlink.Route{Table: unix.RT_TABLE_MAIN}
		list, err := dump(func() ([]netlink.Route, error) {
			return p.nl.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, raw := range list {
			if r, ok := p.ownRoute(raw, names); ok {
				have = append(have, r)
			}
		}
	}
	return have, nil
}

func (p *pass) routeFamilies() []int {
	var families []int
	for _, n := range append(slices.Clip(p.want.Networks), p.want.Former...) {
		if n.Addr().Is4() {
			families = append(families, netlink.FAMILY_V4)
		} else {
			families = append(families, netlink.FAMILY_V6)
		}
	}
	slices.Sort(families)
	return slices.Compact(families)
}

func (p *pass) ownRoute(raw netlink.Route, names map[int]string) (ownRoute, bool) {
	name, known := names[raw.LinkIndex]
	dst := fromIPNet(raw.Dst)
	if !known || raw.Protocol == unix.RTPROT_KERNEL || !dst.IsValid() || !p.insidePrefix(dst) {
		return ownRoute{}, false
	}
	via, _ := netip.AddrFromSlice(raw.Gw)
	r := plan.Route{Dst: dst, Via: via.Unmap(), Link: name, Onlink: raw.Flags&unix.RTNH_F_ONLINK != 0}
	if name == p.want.Uplink && (!via.IsValid() || !within(p.want.Networks, dst) && !p.formerly(raw, r)) {
		return ownRoute{}, false // a plain route of the uplink's own, or by now somebody else's
	}
	return ownRoute{
		Route:   r,
		raw:     raw,
		plain:   plainRoute(dst, raw.Priority, raw.Tos),
		changed: changedRoute(raw),
	}, true
}

// changedRoute reports whether a route has attributes that the overlay's routes do not have.
func changedRoute(r netlink.Route) bool {
	return r.MTU != 0 || r.AdvMSS != 0 || r.Window != 0 || r.Hoplimit != 0 || r.Src != nil || r.Encap != nil ||
		len(r.MultiPath) > 0 || r.Type != unix.RTN_UNICAST
}

// plainRoute reports whether a route has the metric and the type of service that it gets unless told
// otherwise (1024 is IP6_RT_PRIO_USER of net/ip6_route.h).
func plainRoute(dst netip.Prefix, metric, tos int) bool {
	return tos == 0 && (metric == 0 || dst.Addr().Is6() && metric == 1024)
}

// insidePrefix reports whether a prefix lies inside one of the overlay's networks, now or before, or is one.
func (p *pass) insidePrefix(dst netip.Prefix) bool {
	return within(p.want.Networks, dst) || within(p.want.Former, dst)
}

func within(networks []netip.Prefix, dst netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool {
		return netconf.Range{Network: n}.Covers(dst)
	})
}

func routeEntry(r plan.Route, links map[string]netlink.Link) *netlink.Route {
	entry := &netlink.Route{
		Dst: toIPNet(r.Dst), LinkIndex: links[r.Link].Attrs().Index, Table: unix.RT_TABLE_MAIN,
		Protocol: unix.RTPROT_BOOT, Scope: netlink.SCOPE_UNIVERSE,
	}
	if r.Via.IsValid() {
		entry.Gw = r.Via.AsSlice()
	} else {
		entry.Scope = netlink.SCOPE_LINK
	}
	if r.Onlink {
		entry.SetFlag(netlink.FLAG_ONLINK)
	}
	return entry
}

func routeText(r plan.Route) string {
	text := r.Dst.String()
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	text += " dev " + r.Link
	if r.Onlink {
		text += " onlink"
	}
	return text
}
