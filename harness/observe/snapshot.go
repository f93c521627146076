package observe

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

// Snapshot is what a network namespace holds at one moment, as lines that read like those of ip and bridge.
type Snapshot struct {
	Links, Addresses, Routes, Neighbours, FDB []string
	// Rules count the nftables rules of each chain.
	Rules []string
}

// Take reads a snapshot.
func Take(handle netns.NsHandle) (Snapshot, error) {
	nl, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		return Snapshot{}, fmt.Errorf("take a snapshot: %w", err)
	}
	defer nl.Close()
	links, err := ns.Complete(nl.LinkList)
	if err != nil {
		return Snapshot{}, fmt.Errorf("take a snapshot of the links: %w", err)
	}
	var s Snapshot
	var errs []error
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		s.Links = append(s.Links, linkText(l))
	}
	for _, l := range links {
		addrs, err := ns.Complete(
			func() ([]netlink.Addr, error) { return nl.AddrList(l, netlink.FAMILY_V4) },
		)
		errs = append(errs, err)
		for _, a := range addrs {
			s.Addresses = append(s.Addresses, fmt.Sprintf("%s dev %s", a.IPNet, l.Attrs().Name))
		}
		neighbours, err := ns.Complete(func() ([]netlink.Neigh, error) {
			return nl.NeighList(l.Attrs().Index, netlink.FAMILY_V4)
		})
		errs = append(errs, err)
		for _, n := range neighbours {
			s.Neighbours = append(s.Neighbours, fmt.Sprintf("%s dev %s lladdr %s %s", n.IP, l.Attrs().Name,
				hardware(n.HardwareAddr), StateName(n.State)))
		}
		if l.Type() != "vxlan" {
			continue
		}
		fdb, err := ns.Complete(
			func() ([]netlink.Neigh, error) { return nl.NeighList(l.Attrs().Index, unix.AF_BRIDGE) },
		)
		errs = append(errs, err)
		for _, n := range fdb {
			s.FDB = append(s.FDB, fmt.Sprintf("%s dev %s dst %s %s", hardware(n.HardwareAddr), l.Attrs().Name, n.IP,
				strings.ToLower(StateName(n.State))))
		}
	}
	routes, err := ns.Complete(func() ([]netlink.Route, error) {
		return nl.RouteListFiltered(
			netlink.FAMILY_V4,
			&netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE,
		)
	})
	errs = append(errs, err)
	for _, r := range routes {
		s.Routes = append(s.Routes, routeText(r, names))
	}
	handles, err := RuleHandles(handle)
	errs = append(errs, err)
	chains := map[string]int{}
	for _, h := range handles {
		chains[h[:strings.LastIndexByte(h, ' ')]]++
	}
	for chain, n := range chains {
		s.Rules = append(s.Rules, fmt.Sprintf("rules in %s: %d", chain, n))
	}
	for _, lines := range [][]string{s.Rules, s.Addresses, s.Routes, s.Neighbours, s.FDB} {
		slices.Sort(lines)
	}
	return s, errors.Join(errs...)
}

func linkText(l netlink.Link) string {
	a := l.Attrs()
	state := "DOWN"
	if a.Flags&net.FlagUp != 0 {
		state = "UP"
	}
	text := fmt.Sprintf(
		"%s: %s mtu %d %s link/ether %s",
		a.Name,
		state,
		a.MTU,
		l.Type(),
		hardware(a.HardwareAddr),
	)
	if v, ok := l.(*netlink.Vxlan); ok {
		text += fmt.Sprintf(" id %d local %s dstport %d", v.VxlanId, v.SrcAddr, v.Port)
		if v.Learning {
			text += " learning"
		}
	}
	return text
}

func routeText(r netlink.Route, names map[int]string) string {
	text := "default"
	if r.Dst != nil && r.Dst.String() != "0.0.0.0/0" {
		text = r.Dst.String()
	}
	if r.Gw != nil {
		text += " via " + r.Gw.String()
	}
	if name := names[r.LinkIndex]; name != "" {
		text += " dev " + name
	}
	if r.Scope == netlink.SCOPE_LINK {
		text += " scope link"
	}
	if r.Flags&unix.RTNH_F_ONLINK != 0 {
		text += " onlink"
	}
	if r.Priority != 0 {
		text += fmt.Sprintf(" metric %d", r.Priority)
	}
	return text
}

func hardware(mac net.HardwareAddr) string {
	if len(mac) == 0 {
		return "none"
	}
	return mac.String()
}
