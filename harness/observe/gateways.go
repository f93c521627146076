package observe

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

// RouteDestinations lists where the IPv4 routes of a network namespace's main table lead, without the default.
func RouteDestinations(handle netns.NsHandle) ([]netip.Prefix, error) {
	routes, err := mainRoutes(handle)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var destinations []netip.Prefix
	for _, r := range routes {
		if dst, ok := ns.Prefix(r.Dst); ok && dst.Bits() > 0 {
			destinations = append(destinations, dst)
		}
	}
	return destinations, nil
}

// mainRoutes reads the IPv4 routes of a network namespace's main table.
func mainRoutes(handle netns.NsHandle) ([]netlink.Route, error) {
	nl, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	return ns.Complete(func() ([]netlink.Route, error) {
		return nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE)
	})
}

// Gateways lists the next hops of the IPv4 routes of a network namespace's main table.
func Gateways(handle netns.NsHandle) ([]netip.Addr, error) {
	routes, err := mainRoutes(handle)
	if err != nil {
		return nil, fmt.Errorf("list gateways: %w", err)
	}
	var gateways []netip.Addr
	for _, r := range routes {
		if a, ok := netip.AddrFromSlice(r.Gw); ok {
			gateways = append(gateways, a.Unmap())
		}
	}
	return gateways, nil
}
