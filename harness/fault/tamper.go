package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
)

// Tamper changes one thing in a node's kernel behind the agent's back. Where repairing it is the overlay's
// part there is no heal; what is not the overlay's own is put back by the heal. The proof is that the kernel
// took the change.
type Tamper struct {
	Node string
	What Tampering
}

// Tampering is one kind of change.
type Tampering struct {
	id, name string
	// do makes the change. What it returns, if anything, undoes it.
	do func(m *node.Machine, link netlink.Link) (undo func() error, err error)
}

// String returns the name by which the kind is reported.
func (t Tampering) String() string { return t.name }

// final makes a change of one that the overlay repairs.
func final(do func(m *node.Machine, link netlink.Link) error) func(*node.Machine, netlink.Link) (
	func() error, error) {
	return func(m *node.Machine, link netlink.Link) (func() error, error) { return nil, do(m, link) }
}

// strangerMAC is nobody's: locally administered.
var strangerMAC = net.HardwareAddr{0x02, 0x66, 0x66, 0x66, 0x66, 0x66}

// stranger is an address at which nobody is (RFC 5737).
var stranger = net.IPv4(192, 0, 2, 66)

// Kinds of tampering with the overlay's own objects.
var (
	DeviceDeleted = Tampering{
		"device-delete", "device deleted",
		final(func(m *node.Machine, link netlink.Link) error {
			return m.Netlink().LinkDel(link)
		}),
	}
	DeviceDown = Tampering{
		"device-down", "device down",
		final(func(m *node.Machine, link netlink.Link) error {
			return m.Netlink().LinkSetDown(link)
		}),
	}
	DeviceMACChanged = Tampering{
		"device-mac", "device's MAC changed",
		final(func(m *node.Machine, link netlink.Link) error {
			return m.Netlink().LinkSetHardwareAddr(link, strangerMAC)
		}),
	}
	DeviceMTUChanged = Tampering{
		"device-mtu", "device's MTU changed",
		final(func(m *node.Machine, link netlink.Link) error {
			return m.Netlink().LinkSetMTU(link, 1200)
		}),
	}
	RoutesDeleted = Tampering{
		"routes-delete", "routes deleted",
		final(func(m *node.Machine, link netlink.Link) error {
			return each(m.Netlink().RouteList(link, netlink.FAMILY_V4))(func(r netlink.Route) error {
				return m.Netlink().RouteDel(&r)
			})
		}),
	}
	// RoutesChanged leads what was for the peers out of the uplink.
	RoutesChanged = Tampering{
		"routes-change", "routes changed",
		final(func(m *node.Machine, link netlink.Link) error {
			uplink, err := m.Netlink().LinkByName(node.Uplink)
			if err != nil {
				return err
			}
			return each(m.Netlink().RouteList(link, netlink.FAMILY_V4))(func(r netlink.Route) error {
				return m.Netlink().RouteReplace(&netlink.Route{
					Dst: r.Dst, LinkIndex: uplink.Attrs().Index,
					Scope: netlink.SCOPE_LINK, Priority: r.Priority, Table: r.Table,
				})
			})
		}),
	}
	NeighboursDeleted = Tampering{
		"neighbours-delete", "neighbours deleted",
		final(func(m *node.Machine, link netlink.Link) error {
			return each(m.Netlink().NeighList(link.Attrs().Index, netlink.FAMILY_V4))(func(n netlink.Neigh) error {
				return m.Netlink().NeighDel(&n)
			})
		}),
	}
	NeighboursChanged = Tampering{
		"neighbours-change", "neighbours changed",
		final(func(m *node.Machine, link netlink.Link) error {
			return each(m.Netlink().NeighList(link.Attrs().Index, netlink.FAMILY_V4))(func(n netlink.Neigh) error {
				n.HardwareAddr = strangerMAC
				return m.Netlink().NeighSet(&n)
			})
		}),
	}
	FDBDeleted = Tampering{
		"fdb-delete", "forwarding entries deleted",
		final(func(m *node.Machine, link netlink.Link) error {
			return each(m.Netlink().NeighList(link.Attrs().Index, unix.AF_BRIDGE))(func(n netlink.Neigh) error {
				return m.Netlink().NeighDel(&n)
			})
		}),
	}
	// FDBChanged leads what was for the peers' VTEPs to an address at which nobody is.
	FDBChanged = Tampering{
		"fdb-change", "forwarding entries changed",
		final(func(m *node.Machine, link netlink.Link) error {
			return each(m.Netlink().NeighList(link.Attrs().Index, unix.AF_BRIDGE))(func(n netlink.Neigh) error {
				n.IP = stranger
				return m.Netlink().NeighSet(&n)
			})
		}),
	}
	RulesFlushed = Tampering{
		"rules-flush", "all nftables rules flushed",
		final(func(m *node.Machine, _ netlink.Link) error {
			conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
			if err != nil {
				return err
			}
			conn.FlushRuleset()
			return conn.Flush()
		}),
	}
	ForwardingOff = Tampering{
		"ip-forward-off", "ip_forward set to 0",
		final(func(m *node.Machine, _ netlink.Link) error {
			return m.Sysctl("net.ipv4.ip_forward", "0")
		}),
	}
	// ForwardDrop is what Docker does: the FORWARD chain of iptables' filter table, as iptables-nft keeps it,
	// with policy DROP (flannel#799).
	ForwardDrop = Tampering{
		"forward-drop", "FORWARD policy DROP",
		func(m *node.Machine, _ netlink.Link) (func() error, error) {
			return forward(m, nftables.ChainPolicyDrop, nil)
		},
	}
	// ForwardReject is what firewalld leaves at the end of its chains: whatever got that far is refused.
	ForwardReject = Tampering{
		"forward-reject", "catch-all REJECT in FORWARD",
		func(m *node.Machine, _ netlink.Link) (func() error, error) {
			return forward(m, nftables.ChainPolicyAccept, []expr.Any{
				&expr.Counter{},
				&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}, // port unreachable, iptables' default
			})
		},
	}
	// ReversePathStrict has the kernel drop what comes in by another link than an answer would leave by
	// (RFC 3704, 2.2).
	ReversePathStrict = Tampering{
		"rp-filter",
		"rp_filter set to 1",
		func(m *node.Machine, link netlink.Link) (func() error, error) {
			var undo []func() error
			for _, name := range []string{"all", "default", node.Uplink, link.Attrs().Name} {
				back, err := setSysctl(m, "net.ipv4.conf."+node.SysctlName(name)+".rp_filter", "1")
				undo = append(undo, back)
				if err != nil {
					return joined(undo), err
				}
			}
			return joined(undo), nil
		},
	}
)

// joined undoes several changes, the last first.
func joined(all []func() error) func() error {
	return func() error {
		var errs []error
		for i := len(all) - 1; i >= 0; i-- {
			errs = append(errs, all[i]())
		}
		return errors.Join(errs...)
	}
}

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

// needsDevice reports whether it is about the overlay's device, which is not there before an agent was.
func (t Tampering) needsDevice() bool {
	return !slices.Contains([]string{
		ForwardDrop.id, ForwardReject.id, RulesFlushed.id, ForwardingOff.id,
	}, t.id)
}

// Name implements Fault.
func (f Tamper) Name() string { return f.What.name + " on " + f.Node }

// Identity implements Fault.
func (f Tamper) Identity() Identity { return at(f.What.id, f.Node) }

// Inject implements Fault.
func (f Tamper) Inject(_ context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	if !machine.On() {
		return fmt.Errorf("%w: %s is switched off", ErrNotProven, f.Node)
	}
	boot := machine.Boot()
	undo := func() error { return nil }
	w.OnHeal(func(context.Context) error {
		if !machine.On() || machine.Boot() != boot {
			return nil // what was changed went with the boot before
		}
		return undo()
	})
	link, err := machine.Netlink().LinkByName(w.Device())
	if err == nil || !f.What.needsDevice() {
		var back func() error
		if back, err = f.What.do(machine, link); back != nil {
			undo = back
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}
