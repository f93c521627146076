package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
)

// UplinkReaddressed gives a node's uplink another address, as a DHCP server may; the heal gives the old one back.
type UplinkReaddressed struct {
	Node string
	Addr netip.Prefix
}

// Name implements Fault.
func (f UplinkReaddressed) Name() string { return "uplink of " + f.Node + " has another address" }

// Inject implements Fault. The proof is that the kernel took both changes.
func (f UplinkReaddressed) Inject(_ context.Context, w World) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	old := netip.PrefixFrom(machine.Addr(), f.Addr.Bits())
	w.OnHeal(f.Name(), func(context.Context) error { return readdress(machine, f.Addr, old) })
	if err := readdress(machine, old, f.Addr); err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}

// readdress replaces an address of the uplink, and puts back the default route that goes with it.
func readdress(m *node.Machine, from, to netip.Prefix) error {
	link, err := m.Netlink().LinkByName(node.Uplink)
	if err != nil {
		return err
	}
	routes, err := m.Netlink().RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: link.Attrs().Index},
		netlink.RT_FILTER_OIF)
	if err != nil {
		return err
	}
	address := func(p netip.Prefix) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}}
	}
	if err := errors.Join(m.Netlink().AddrDel(link, address(from)), m.Netlink().AddrAdd(link, address(to))); err != nil {
		return err
	}
	for _, r := range routes {
		if r.Gw != nil && (r.Dst == nil || r.Dst.IP.IsUnspecified()) {
			return m.Netlink().RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: r.Gw})
		}
	}
	return nil
}

// Tamper changes one thing in a node's kernel behind the agent's back. Repairing it is the overlay's part, so
// there is no heal; the proof is that the kernel took the change.
type Tamper struct {
	Node string
	What Tampering
}

// Tampering is one kind of change.
type Tampering struct {
	name string
	do   func(m *node.Machine, link netlink.Link) error
}

// String returns the name by which the kind is reported.
func (t Tampering) String() string { return t.name }

// Kinds of tampering with the overlay's own objects.
var (
	DeviceDeleted = Tampering{"device deleted", func(m *node.Machine, link netlink.Link) error {
		return m.Netlink().LinkDel(link)
	}}
	DeviceDown = Tampering{"device down", func(m *node.Machine, link netlink.Link) error {
		return m.Netlink().LinkSetDown(link)
	}}
	DeviceMACChanged = Tampering{"device's MAC changed", func(m *node.Machine, link netlink.Link) error {
		return m.Netlink().LinkSetHardwareAddr(link, net.HardwareAddr{0x02, 0x66, 0x66, 0x66, 0x66, 0x66})
	}}
	RoutesDeleted = Tampering{"routes deleted", func(m *node.Machine, link netlink.Link) error {
		return each(m.Netlink().RouteList(link, netlink.FAMILY_V4))(func(r netlink.Route) error {
			return m.Netlink().RouteDel(&r)
		})
	}}
	NeighboursDeleted = Tampering{"neighbours deleted", func(m *node.Machine, link netlink.Link) error {
		return each(m.Netlink().NeighList(link.Attrs().Index, netlink.FAMILY_V4))(func(n netlink.Neigh) error {
			return m.Netlink().NeighDel(&n)
		})
	}}
	FDBDeleted = Tampering{"forwarding entries deleted", func(m *node.Machine, link netlink.Link) error {
		return each(m.Netlink().NeighList(link.Attrs().Index, unix.AF_BRIDGE))(func(n netlink.Neigh) error {
			return m.Netlink().NeighDel(&n)
		})
	}}
	RulesFlushed = Tampering{"all nftables rules flushed", func(m *node.Machine, _ netlink.Link) error {
		conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
		if err != nil {
			return err
		}
		conn.FlushRuleset()
		return conn.Flush()
	}}
	ForwardingOff = Tampering{"ip_forward set to 0", func(m *node.Machine, _ netlink.Link) error {
		return m.Sysctl("net.ipv4.ip_forward", "0")
	}}
	// ForwardDrop is what Docker does: the FORWARD chain of iptables' filter table, as iptables-nft keeps it,
	// with policy DROP (flannel#799).
	ForwardDrop = Tampering{"FORWARD policy DROP", func(m *node.Machine, _ netlink.Link) error {
		conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
		if err != nil {
			return err
		}
		drop := nftables.ChainPolicyDrop
		conn.AddChain(&nftables.Chain{
			Name: "FORWARD", Table: conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4}),
			Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
			Priority: nftables.ChainPriorityFilter, Policy: &drop,
		})
		return conn.Flush()
	}}
)

// each runs do for every entry of a list that was read.
func each[T any](all []T, err error) func(do func(T) error) error {
	return func(do func(T) error) error {
		errs := []error{err}
		for _, v := range all {
			errs = append(errs, do(v))
		}
		if len(all) == 0 {
			errs = append(errs, errors.New("there is none"))
		}
		return errors.Join(errs...)
	}
}

// Name implements Fault.
func (f Tamper) Name() string { return f.What.name + " on " + f.Node }

// Inject implements Fault.
func (f Tamper) Inject(_ context.Context, w World) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	link, err := machine.Netlink().LinkByName(w.Device())
	if err == nil {
		err = f.What.do(machine, link)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}
