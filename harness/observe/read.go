// Package observe reads what a kernel holds, without touching it: links, addresses, routes, neighbours,
// forwarding entries, rules and sysctls of a network namespace, at one moment (Read) or while they change
// (WatchNeighbours, WatchARP). State.Lines tells them in the words that iproute2 uses.
package observe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

// Table is a part of State, for Read.
type Table int

// The tables that Read reads beside the links.
const (
	AddressTable Table = iota
	RouteTable
	NeighbourTable
	ForwardingTable
	RuleTable
	SysctlTable
)

// Read reads the links of a network namespace and the tables that are named, or all of them when none is.
// Parts that could not be read are missing, and the error says which.
func Read(handle netns.NsHandle, tables ...Table) (State, error) {
	r, err := open(handle)
	if err != nil {
		return State{}, fmt.Errorf("read the kernel's state: %w", err)
	}
	defer r.nl.Close()
	if err := r.links(); err != nil {
		return r.State, fmt.Errorf("read the links: %w", err)
	}
	var errs []error
	for t, part := range []struct { // in the order of the constants
		name string
		read func() error
	}{
		{"addresses", r.addresses},
		{"routes", r.routes},
		{"neighbours", r.neighbours},
		{"forwarding entries", r.fdb},
		{"rules", r.rules},
		{"sysctls", r.sysctls},
	} {
		if len(tables) > 0 && !slices.Contains(tables, Table(t)) {
			continue
		}
		if err := part.read(); err != nil {
			errs = append(errs, fmt.Errorf("read the %s: %w", part.name, err))
		}
	}
	return r.State, errors.Join(errs...)
}

type reader struct {
	State
	handle netns.NsHandle
	nl     *netlink.Handle
	names  map[int]string // of the links, by index
}

func open(handle netns.NsHandle) (*reader, error) {
	nl, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	return &reader{handle: handle, nl: nl, names: map[int]string{}}, err
}

func (r *reader) links() error {
	links, err := ns.Complete(r.nl.LinkList)
	for _, l := range links {
		a := l.Attrs()
		r.names[a.Index] = a.Name
		link := Link{
			Index: a.Index, Name: a.Name, Type: l.Type(), Up: a.Flags&net.FlagUp != 0,
			Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, MTU: a.MTU, MAC: a.HardwareAddr.String(),
			Master: a.MasterIndex,
		}
		if link.Type == "veth" {
			link.Peer = a.ParentIndex
		}
		if v, ok := l.(*netlink.Vxlan); ok {
			link.VNI, link.Port, link.Local, link.Learning = v.VxlanId, v.Port, address(v.SrcAddr), v.Learning
		}
		r.Links = append(r.Links, link)
	}
	return err
}

func (r *reader) addresses() error {
	all, err := ns.Complete(func() ([]netlink.Addr, error) { return r.nl.AddrList(nil, netlink.FAMILY_ALL) })
	for _, a := range all {
		if p, ok := ns.Prefix(a.IPNet); ok {
			r.Addresses = append(r.Addresses, Address{Device: r.names[a.LinkIndex], Prefix: p})
		}
	}
	return err
}

// routeTypes by the names of ip-route(8).
var routeTypes = map[int]string{
	unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast",
	unix.RTN_ANYCAST: "anycast", unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole",
	unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
}

// unspecified are the addresses of default routes.
var unspecified = map[int]netip.Addr{
	unix.AF_INET: netip.IPv4Unspecified(), unix.AF_INET6: netip.IPv6Unspecified(),
}

func (r *reader) routes() error {
	all, err := ns.Complete(func() ([]netlink.Route, error) {
		// The table 0 stands for all of them.
		return r.nl.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	})
	for _, got := range all {
		everywhere, ok := unspecified[got.Family]
		if !ok {
			continue // of multicast routing, or MPLS
		}
		route := Route{
			Dst: netip.PrefixFrom(everywhere, 0), Via: address(got.Gw), Device: r.names[got.LinkIndex],
			Type: routeTypes[got.Type], Table: got.Table, Metric: got.Priority,
			OnLink:    got.Flags&unix.RTNH_F_ONLINK != 0,
			ScopeLink: got.Scope == netlink.SCOPE_LINK,
		}
		if dst, ok := ns.Prefix(got.Dst); ok {
			route.Dst = dst
		}
		for _, hop := range got.MultiPath {
			route.Hops = append(route.Hops, Hop{Via: address(hop.Gw), Device: r.names[hop.LinkIndex]})
		}
		r.Routes = append(r.Routes, route)
	}
	return err
}

func (r *reader) neighbours() (err error) {
	r.Neighbours, err = r.entries(0, unix.AF_UNSPEC)
	return err
}

func (r *reader) fdb() error {
	var errs []error
	for _, l := range r.Links {
		if l.Type == "vxlan" {
			entries, err := r.entries(l.Index, unix.AF_BRIDGE)
			r.FDB, errs = append(r.FDB, entries...), append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// entries reads a neighbour or forwarding table, of one link or, for 0, of all.
func (r *reader) entries(link, family int) (entries []Neighbour, err error) {
	all, err := ns.Complete(func() ([]netlink.Neigh, error) { return r.nl.NeighList(link, family) })
	for _, n := range all {
		entries = append(entries, Neighbour{
			Device: r.names[n.LinkIndex], IP: address(n.IP),
			MAC: n.HardwareAddr.String(), State: StateName(n.State),
		})
	}
	return entries, err
}

func (r *reader) rules() error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(r.handle)))
	if err != nil {
		return err
	}
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("list the chains: %w", err)
	}
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		if errors.Is(err, unix.ENOENT) {
			continue // gone meanwhile
		}
		if err != nil {
			return fmt.Errorf("list those of chain %s: %w", c.Name, err)
		}
		for _, rule := range rules {
			r.Rules = append(r.Rules, Rule{
				Family: FamilyName(uint8(c.Table.Family)), Table: c.Table.Name,
				Chain: c.Name, Handle: rule.Handle, Text: ruleText(rule.Exprs), Exact: exactText(rule.Exprs),
			})
		}
	}
	return nil
}

// sysctls reads the parameters that decide about forwarding and answering.
func (r *reader) sysctls() error {
	const root = "/proc/sys/net/ipv4"
	paths := []string{"ip_forward", "icmp_echo_ignore_all", "conf/all/rp_filter"}
	for _, l := range r.Links {
		paths = append(paths, "conf/"+l.Name+"/rp_filter", "conf/"+l.Name+"/forwarding")
	}
	r.Sysctls = map[string]string{}
	return ns.Do(r.handle, func() error {
		for _, p := range paths {
			raw, err := os.ReadFile(filepath.Join(root, p))
			if errors.Is(err, os.ErrNotExist) {
				continue // a link without IPv4, or one that has gone meanwhile
			}
			if err != nil {
				return err
			}
			r.Sysctls[p] = strings.TrimSpace(string(raw))
		}
		return nil
	})
}

func address(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// The lists below are for those who ask again and again: each is one dump, without all the links.

// Gateways lists the next hops of the IPv4 routes of a network namespace's main table.
func Gateways(handle netns.NsHandle) ([]netip.Addr, error) {
	r, err := open(handle)
	if err != nil {
		return nil, fmt.Errorf("list next hops: %w", err)
	}
	defer r.nl.Close()
	if err := r.routes(); err != nil {
		return nil, fmt.Errorf("list next hops: %w", err)
	}
	var gateways []netip.Addr
	for _, route := range r.Routes {
		if route.Table == unix.RT_TABLE_MAIN && route.Via.Is4() {
			gateways = append(gateways, route.Via)
		}
	}
	return gateways, nil
}

// Destinations lists where the IPv4 routes of a network namespace's main table lead, without the default.
func Destinations(handle netns.NsHandle) ([]netip.Prefix, error) {
	r, err := open(handle)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	defer r.nl.Close()
	if err := r.routes(); err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var destinations []netip.Prefix
	for _, route := range r.Routes {
		if route.Table == unix.RT_TABLE_MAIN && route.Dst.Addr().Is4() && route.Dst.Bits() > 0 {
			destinations = append(destinations, route.Dst)
		}
	}
	return destinations, nil
}

// Neighbours lists the IPv4 neighbour entries of a device. That there is no such device is an error.
func Neighbours(handle netns.NsHandle, device string) ([]Neighbour, error) {
	return entriesOf(handle, device, unix.AF_INET)
}

// FDB lists the forwarding entries of a device. That there is no such device is an error.
func FDB(handle netns.NsHandle, device string) ([]Neighbour, error) {
	return entriesOf(handle, device, unix.AF_BRIDGE)
}

func entriesOf(handle netns.NsHandle, device string, family int) ([]Neighbour, error) {
	r, err := open(handle)
	if err != nil {
		return nil, fmt.Errorf("list entries of %s: %w", device, err)
	}
	defer r.nl.Close()
	link, err := r.nl.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("list entries of %s: %w", device, err)
	}
	r.names[link.Attrs().Index] = device
	entries, err := r.entries(link.Attrs().Index, family)
	if err != nil {
		return nil, fmt.Errorf("list entries of %s: %w", device, err)
	}
	return entries, nil
}
