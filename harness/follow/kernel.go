package follow

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/observe"
)

// Read reads what a network namespace holds. Parts that could not be read are missing, and the error says
// which.
func Read(handle netns.NsHandle) (State, error) {
	nl, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		return State{}, fmt.Errorf("read the kernel's state: %w", err)
	}
	defer nl.Close()
	var s State
	names, err := s.readLinks(nl)
	if err != nil {
		return s, err
	}
	return s, errors.Join(
		s.readAddresses(nl, names), s.readRoutes(nl, names), s.readNeighbours(nl, names),
		s.readRules(handle), s.readSysctls(handle),
	)
}

func (s *State) readLinks(nl *netlink.Handle) (map[int]string, error) {
	links, err := ns.Complete(nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("read the links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
		link := Link{
			Index: a.Index, Name: a.Name, Type: l.Type(), Up: a.Flags&net.FlagUp != 0,
			Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, MTU: a.MTU, MAC: a.HardwareAddr.String(),
			Master: a.MasterIndex,
		}
		if link.Type == "veth" {
			link.Peer = a.ParentIndex
		}
		if v, ok := l.(*netlink.Vxlan); ok {
			link.VNI, link.Port = v.VxlanId, v.Port
		}
		s.Links = append(s.Links, link)
	}
	return names, nil
}

func (s *State) readAddresses(nl *netlink.Handle, names map[int]string) error {
	addrs, err := ns.Complete(
		func() ([]netlink.Addr, error) { return nl.AddrList(nil, netlink.FAMILY_V4) },
	)
	if err != nil {
		return fmt.Errorf("read the addresses: %w", err)
	}
	for _, a := range addrs {
		if p, ok := ns.Prefix(a.IPNet); ok {
			s.Addresses = append(s.Addresses, Address{Device: names[a.LinkIndex], Prefix: p})
		}
	}
	return nil
}

// routeTypes by the names of ip-route(8).
var routeTypes = map[int]string{
	unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast",
	unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit",
	unix.RTN_THROW: "throw",
}

func (s *State) readRoutes(nl *netlink.Handle, names map[int]string) error {
	routes, err := ns.Complete(func() ([]netlink.Route, error) {
		// The table 0 stands for all of them.
		return nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("read the routes: %w", err)
	}
	for _, r := range routes {
		route := Route{
			Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Device: names[r.LinkIndex], Table: r.Table,
			Metric: r.Priority, Type: routeTypes[r.Type],
		}
		if r.Dst != nil {
			route.Dst, _ = ns.Prefix(r.Dst)
		}
		if r.Gw != nil {
			route.Via = address(r.Gw)
		}
		if len(r.MultiPath) > 0 { // the first stands for all
			route.Device, route.Via = names[r.MultiPath[0].LinkIndex], address(r.MultiPath[0].Gw)
		}
		s.Routes = append(s.Routes, route)
	}
	return nil
}

func (s *State) readNeighbours(nl *netlink.Handle, names map[int]string) error {
	entries, err := ns.Complete(
		func() ([]netlink.Neigh, error) { return nl.NeighList(0, netlink.FAMILY_V4) },
	)
	if err != nil {
		return fmt.Errorf("read the neighbours: %w", err)
	}
	for _, n := range entries {
		s.Neighbours = append(s.Neighbours, Neighbour{Device: names[n.LinkIndex], IP: address(n.IP),
			MAC: n.HardwareAddr.String(), State: observe.StateName(n.State)})
	}
	for _, l := range s.Links {
		if l.Type != "vxlan" {
			continue
		}
		fdb, err := ns.Complete(
			func() ([]netlink.Neigh, error) { return nl.NeighList(l.Index, unix.AF_BRIDGE) },
		)
		if err != nil {
			return fmt.Errorf("read the forwarding entries of %s: %w", l.Name, err)
		}
		for _, n := range fdb {
			s.FDB = append(s.FDB, FDBEntry{Device: l.Name, MAC: n.HardwareAddr.String(), Dst: address(n.IP)})
		}
	}
	return nil
}

func (s *State) readRules(handle netns.NsHandle) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(handle)))
	if err != nil {
		return fmt.Errorf("read the rules: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("read the chains: %w", err)
	}
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return fmt.Errorf("read the rules of chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			s.Rules = append(s.Rules, Rule{Family: families[uint8(c.Table.Family)], Table: c.Table.Name,
				Chain: c.Name, Handle: r.Handle, Text: ruleText(r.Exprs)})
		}
	}
	return nil
}

// readSysctls reads the parameters that decide about forwarding and answering.
func (s *State) readSysctls(handle netns.NsHandle) error {
	const root = "/proc/sys/net/ipv4"
	paths := []string{"ip_forward", "icmp_echo_ignore_all", "conf/all/rp_filter"}
	for _, l := range s.Links {
		paths = append(paths, "conf/"+l.Name+"/rp_filter", "conf/"+l.Name+"/forwarding")
	}
	s.Sysctls = map[string]string{}
	return ns.Do(handle, func() error {
		for _, p := range paths {
			raw, err := os.ReadFile(filepath.Join(root, p))
			if errors.Is(err, os.ErrNotExist) {
				continue // a link without IPv4, or one that has gone meanwhile
			}
			if err != nil {
				return fmt.Errorf("read a kernel parameter: %w", err)
			}
			s.Sysctls[p] = strings.TrimSpace(string(raw))
		}
		return nil
	})
}
