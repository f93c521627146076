package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// Selectors say which link is the uplink: the first that one of Names (a link's name or one of its
// addresses) or Patterns (regular expressions over both) finds, else the one towards CanReach, else the one
// of the default route.
type Selectors struct {
	Names, Patterns []string
	CanReach        string
}

// FindUplink finds the uplink and its addresses in the network namespace of the calling process. The error
// says what was not found. The link may appear later.
func FindUplink(s Selectors) (plan.Uplink, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return plan.Uplink{}, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	links, err := dump(nl.LinkList)
	if err != nil {
		return plan.Uplink{}, fmt.Errorf("list links: %w", err)
	}
	link, named, err := s.choose(nl, links)
	if err != nil {
		return plan.Uplink{}, err
	}
	attrs := link.Attrs()
	up := plan.Uplink{Name: attrs.Name, MTU: attrs.MTU}
	addrs, err := dump(func() ([]netlink.Addr, error) { return nl.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return plan.Uplink{}, fmt.Errorf("list addresses of %s: %w", attrs.Name, err)
	}
	// An address by which the link was chosen is the one to use, though the link may have others.
	switch {
	case named.Is4():
		up.Addr = named
	case named.Is6() && !named.IsLinkLocalUnicast():
		up.Addr6 = named
	}
	for _, a := range addrs {
		addr := fromIPNet(a.IPNet).Addr()
		usable := a.Scope == unix.RT_SCOPE_UNIVERSE && a.Flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_TENTATIVE) == 0
		switch {
		case addr.Is4() && !up.Addr.IsValid() && usable:
			up.Addr = addr
		case addr.Is6() && !up.Addr6.IsValid() && usable:
			up.Addr6 = addr
		case addr.Is6() && a.Scope == unix.RT_SCOPE_UNIVERSE:
			up.Pending6 = up.Pending6 || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == unix.IFA_F_TENTATIVE
		}
	}
	if up.MTU == 0 {
		return plan.Uplink{}, fmt.Errorf("uplink %s has no MTU", attrs.Name)
	}
	return up, nil
}

// choose returns the link, and the address by which it was chosen if that was one of its own.
func (s Selectors) choose(nl *netlink.Handle, links []netlink.Link) (netlink.Link, netip.Addr, error) {
	for _, name := range s.Names {
		link, addr, err := find(nl, links, func(text string) bool { return text == name })
		if link != nil || err != nil {
			return link, addr, err
		}
	}
	for _, pattern := range s.Patterns {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return nil, netip.Addr{}, fmt.Errorf("--iface-regex %q: %w", pattern, err)
		}
		link, addr, err := find(nl, links, re.MatchString)
		if link != nil || err != nil {
			return link, addr, err
		}
	}
	switch {
	case len(s.Names)+len(s.Patterns) > 0:
		return nil, netip.Addr{}, fmt.Errorf("no link is called, or has an address, %s",
			strings.Join(append(append([]string{}, s.Names...), s.Patterns...), " or "))
	case s.CanReach != "":
		return towards(links, s.CanReach)
	default:
		link, err := defaultRoute(nl, links)
		return link, netip.Addr{}, err
	}
}

// find returns the first link whose name or one of whose addresses matches, and that address; nil if none
// does. The addresses of all links are one list: netlink's AddrList reads all, whichever link is asked for.
func find(
	nl *netlink.Handle, links []netlink.Link, match func(string) bool,
) (netlink.Link, netip.Addr, error) {
	for _, l := range links {
		if match(l.Attrs().Name) {
			return l, netip.Addr{}, nil
		}
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return nl.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, netip.Addr{}, fmt.Errorf("list addresses: %w", err)
	}
	for _, l := range links {
		for _, a := range addrs {
			if a.LinkIndex == l.Attrs().Index && match(a.IP.String()) {
				return l, fromIPNet(a.IPNet).Addr(), nil
			}
		}
	}
	return nil, netip.Addr{}, nil
}

func towards(links []netlink.Link, text string) (netlink.Link, netip.Addr, error) {
	ip := net.ParseIP(text)
	if ip == nil {
		return nil, netip.Addr{}, fmt.Errorf("--iface-can-reach %q is not an address", text)
	}
	routes, err := netlink.RouteGet(ip)
	if err != nil || len(routes) == 0 {
		return nil, netip.Addr{}, errors.Join(fmt.Errorf("no route to %s", text), err)
	}
	link, err := byIndex(links, routes[0].LinkIndex)
	from, _ := netip.AddrFromSlice(routes[0].Src)
	return link, from.Unmap(), err
}

func defaultRoute(nl *netlink.Handle, links []netlink.Link) (netlink.Link, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := dump(func() ([]netlink.Route, error) {
			return nl.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if dst := fromIPNet(r.Dst); (!dst.IsValid() || dst.Bits() == 0) && r.LinkIndex > 0 {
				return byIndex(links, r.LinkIndex)
			}
		}
	}
	return nil, errors.New("there is no default route, so no telling which link leads to the other nodes; " +
		"name one with --iface")
}

func byIndex(links []netlink.Link, index int) (netlink.Link, error) {
	for _, l := range links {
		if l.Attrs().Index == index {
			return l, nil
		}
	}
	return nil, fmt.Errorf("link %d is gone", index)
}

// DeviceMAC returns the MAC of a device that exists already, so that it can be kept. It reports false if
// there is none.
func DeviceMAC(name string) (lease.MAC, bool) {
	link, err := netlink.LinkByName(name)
	if err != nil || len(link.Attrs().HardwareAddr) != len(lease.MAC{}) {
		return lease.MAC{}, false
	}
	return toMAC(link.Attrs().HardwareAddr), true
}

// OnLink reports whether an address is reached without a gateway.
func OnLink(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	return err == nil && len(routes) == 1 && routes[0].Gw == nil
}
