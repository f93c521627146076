package checker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/ns"
)

// reservations is where host-local keeps one file an address, in a folder for each network.
const reservations = "/var/lib/cni/networks"

// Collect reads what a machine's kernel and disk hold of an overlay with the given device and subnet file.
// The fields Pods and Agent are left to the caller.
func Collect(m *node.Machine, device, subnetFile string) (Node, error) {
	n := Node{Name: m.Name(), Uplink: node.Uplink, Device: device}
	err := errors.Join(n.readLinks(m), n.readRules(m), n.readReservations(m))
	if err != nil {
		return n, fmt.Errorf("read what %s holds: %w", m.Name(), err)
	}
	n.Gateway = gatewayOf(m.Path(subnetFile))
	return n, nil
}

// Overlay reads the entries of a machine's kernel that are the overlay's, as lines (Node.Overlay).
func Overlay(m *node.Machine, device string, network netip.Prefix) ([]string, error) {
	n := Node{Name: m.Name(), Uplink: node.Uplink, Device: device}
	if err := n.readLinks(m); err != nil {
		return nil, fmt.Errorf("read what %s holds: %w", m.Name(), err)
	}
	return n.Overlay(network), nil
}

// readLinks reads links, and what depends on them: addresses, routes, neighbours, forwarding entries.
func (n *Node) readLinks(m *node.Machine) error {
	nl := m.Netlink()
	links, err := ns.Complete(nl.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	var errs []error
	for _, l := range links {
		name := l.Attrs().Name
		names[l.Attrs().Index] = name
		switch {
		case name == n.Device:
			n.MAC = l.Attrs().HardwareAddr.String()
			errs = append(errs, n.readEntries(nl, l))
		case name == node.Bridge:
			n.HasBridge = true
			n.Bridge, err = addresses(nl, l)
			errs = append(errs, err)
		case name == n.Uplink:
			prefixes, err := addresses(nl, l)
			errs = append(errs, err)
			for _, p := range prefixes {
				n.Addrs = append(n.Addrs, p.Addr())
			}
		case l.Type() == "veth":
			n.Veths = append(n.Veths, Veth{Name: name, Index: l.Attrs().Index})
		}
	}
	routes, err := ns.Complete(func() ([]netlink.Route, error) {
		filter := &netlink.Route{Table: unix.RT_TABLE_MAIN}
		return nl.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE)
	})
	errs = append(errs, err)
	for _, r := range routes {
		if dst, ok := ns.Prefix(r.Dst); ok && dst.Bits() > 0 { // the default route is not of interest
			via, _ := netip.AddrFromSlice(r.Gw)
			n.Routes = append(n.Routes, Route{Dst: dst, Via: via.Unmap(), Link: names[r.LinkIndex],
				Onlink: r.Flags&unix.RTNH_F_ONLINK != 0, Priority: r.Priority})
		}
	}
	return errors.Join(errs...)
}

// readEntries reads the permanent entries of the overlay's device.
func (n *Node) readEntries(nl *netlink.Handle, l netlink.Link) error {
	index := l.Attrs().Index
	list := func(family int) ([]netlink.Neigh, error) {
		return ns.Complete(func() ([]netlink.Neigh, error) { return nl.NeighList(index, family) })
	}
	neighbours, err := list(netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list neighbours of %s: %w", n.Device, err)
	}
	for _, e := range neighbours {
		if addr, ok := netip.AddrFromSlice(e.IP); ok && e.State&netlink.NUD_PERMANENT != 0 {
			n.Neighbours = append(n.Neighbours,
				Neighbour{IP: addr.Unmap(), MAC: e.HardwareAddr.String(), Link: n.Device})
		}
	}
	fdb, err := list(unix.AF_BRIDGE)
	if err != nil {
		return fmt.Errorf("list forwarding entries of %s: %w", n.Device, err)
	}
	for _, e := range fdb {
		if dst, _ := netip.AddrFromSlice(e.IP); e.State&netlink.NUD_PERMANENT != 0 {
			n.FDB = append(n.FDB, FDB{MAC: e.HardwareAddr.String(), Dst: dst.Unmap(), Link: n.Device})
		}
	}
	return nil
}

// CollectPod reads what is inside a pod's network namespace.
func CollectPod(name string, handle netns.NsHandle, ifName string) (Pod, error) {
	nl, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		return Pod{}, fmt.Errorf("look into pod %s: %w", name, err)
	}
	defer nl.Close()
	l, err := nl.LinkByName(ifName)
	if err != nil {
		return Pod{}, fmt.Errorf("find %s of pod %s: %w", ifName, name, err)
	}
	p := Pod{Name: name, Peer: l.Attrs().ParentIndex}
	prefixes, err := addresses(nl, l)
	six, err6 := addressesOf(nl, l, netlink.FAMILY_V6)
	for _, a := range append(prefixes, six...) {
		if !a.Addr().IsLinkLocalUnicast() {
			p.Addrs = append(p.Addrs, a.Addr())
		}
	}
	return p, errors.Join(err, err6)
}

func addresses(nl *netlink.Handle, l netlink.Link) ([]netip.Prefix, error) {
	return addressesOf(nl, l, netlink.FAMILY_V4)
}

func addressesOf(nl *netlink.Handle, l netlink.Link, family int) ([]netip.Prefix, error) {
	list, err := ns.Complete(func() ([]netlink.Addr, error) { return nl.AddrList(l, family) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
	}
	var all []netip.Prefix
	for _, a := range list {
		ones, _ := a.Mask.Size()
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			all = append(all, netip.PrefixFrom(addr.Unmap(), ones))
		}
	}
	return all, nil
}

func (n *Node) readRules(m *node.Machine) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		if errors.Is(err, unix.ENOENT) {
			continue // gone meanwhile
		}
		if err != nil {
			return fmt.Errorf("list rules of chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			n.Rules = append(n.Rules, Rule{Family: familyName(c.Table.Family), Table: c.Table.Name, Chain: c.Name,
				Text: ruleText(r.Exprs), Handle: r.Handle})
		}
	}
	return nil
}

func familyName(f nftables.TableFamily) string {
	switch f {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	case nftables.TableFamilyINet:
		return "inet"
	default:
		return fmt.Sprintf("family %d", f)
	}
}

// ruleText writes down all that a rule does, so that two can be compared.
func ruleText(exprs []expr.Any) string {
	var parts []string
	for _, e := range exprs {
		if _, ok := e.(*expr.Counter); ok {
			continue // what it has counted is not what it does
		}
		name := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr."))
		raw, err := json.Marshal(e)
		if err != nil {
			raw = fmt.Appendf(nil, "%+v", e)
		}
		parts = append(parts, name+string(raw))
	}
	return strings.Join(parts, " ")
}

func (n *Node) readReservations(m *node.Machine) error {
	files, err := filepath.Glob(m.Path(reservations) + "/*/*")
	if err != nil {
		return fmt.Errorf("list reservations: %w", err)
	}
	for _, file := range files {
		addr, err := netip.ParseAddr(filepath.Base(file))
		if err != nil {
			continue // the lock, and the last address that was reserved
		}
		raw, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a reservation: %w", err)
		}
		container, _, _ := strings.Cut(string(raw), "\r\n")
		n.Reservations = append(n.Reservations, Reservation{Network: filepath.Base(filepath.Dir(file)), Addr: addr,
			Container: strings.TrimSpace(container)})
	}
	return nil
}

// gatewayOf reads the node's gateway out of its subnet file; invalid if there is none.
func gatewayOf(path string) netip.Prefix {
	raw, err := os.ReadFile(path)
	if err != nil {
		return netip.Prefix{}
	}
	for line := range bytes.Lines(raw) {
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("FLANNEL_SUBNET=")); ok {
			gateway, _ := netip.ParsePrefix(string(value))
			return gateway
		}
	}
	return netip.Prefix{}
}
