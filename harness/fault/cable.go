package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/underlay"
)

// UplinkDown pulls a node's cable at the switch: the node sees its carrier go and keeps addresses and
// routes.
type UplinkDown struct{ Node string }

// Name implements Fault.
func (f UplinkDown) Name() string { return "uplink of " + f.Node + " down" }

// Identity implements Fault.
func (f UplinkDown) Identity() Identity { return at("uplink-down", f.Node) }

// Inject implements Fault. The proof is that the node's uplink has no carrier.
func (f UplinkDown) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(func(context.Context) error { return w.Switch().PlugCable(f.Node, w.Holder()) })
	if err := w.Switch().PullCable(f.Node, w.Holder()); err != nil {
		return err
	}
	return prove(
		ctx,
		proofWithin,
		node.Uplink+" of "+f.Node+" has no carrier",
		func(context.Context) (bool, error) {
			if !machine.On() {
				return false, fmt.Errorf("%s is switched off", f.Node)
			}
			link, err := machine.Netlink().LinkByName(node.Uplink)
			return err == nil && link.Attrs().RawFlags&unix.IFF_RUNNING == 0, err
		},
	)
}

// UplinkReplaced takes a node's uplink away and gives it another one with the same name and address: a new
// index, a new MAC, and everything that hung on the old one is gone.
type UplinkReplaced struct{ Node string }

// Name implements Fault.
func (f UplinkReplaced) Name() string { return "uplink of " + f.Node + " replaced" }

// Identity implements Fault.
func (f UplinkReplaced) Identity() Identity { return at("uplink-replaced", f.Node) }

// Inject implements Fault. The proof is another index and another MAC.
func (f UplinkReplaced) Inject(_ context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	if !machine.On() {
		return fmt.Errorf("%w: %s is switched off", ErrNotProven, f.Node)
	}
	before, err := machine.Netlink().LinkByName(node.Uplink)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	if err := machine.Replug(); err != nil {
		return err
	}
	after, err := machine.Netlink().LinkByName(node.Uplink)
	if err != nil {
		return err
	}
	b, a := before.Attrs(), after.Attrs()
	if a.Index == b.Index || a.HardwareAddr.String() == b.HardwareAddr.String() {
		return fmt.Errorf("%w: the uplink of %s has index %d and MAC %s as before", ErrNotProven, f.Node, a.Index,
			a.HardwareAddr)
	}
	return nil
}

// UplinkReaddressed gives a node's uplink another address, as a DHCP server may; the heal gives the old one
// back.
type UplinkReaddressed struct {
	Node string
	Addr netip.Prefix
}

// Name implements Fault.
func (f UplinkReaddressed) Name() string { return "uplink of " + f.Node + " has another address" }

// Identity implements Fault.
func (f UplinkReaddressed) Identity() Identity {
	return at("uplink-readdressed", f.Node).with("address", f.Addr)
}

// Inject implements Fault. The proof is that the kernel took both changes.
func (f UplinkReaddressed) Inject(_ context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	old := netip.PrefixFrom(machine.Addr(), f.Addr.Bits())
	w.OnHeal(func(context.Context) error { return readdress(machine, f.Addr, old) })
	if !machine.On() {
		return fmt.Errorf("%w: %s is switched off", ErrNotProven, f.Node)
	}
	if err := readdress(machine, old, f.Addr); err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}

// readdress replaces an address of the uplink, and puts back the default route that goes with it. What is
// already so, as after a reboot, is left so.
func readdress(m *node.Machine, from, to netip.Prefix) error {
	if !m.On() {
		return nil // it has the old one when it is switched on
	}
	nl := m.Netlink()
	link, err := nl.LinkByName(node.Uplink)
	if err != nil {
		return err
	}
	routes, err := nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: link.Attrs().Index},
		netlink.RT_FILTER_OIF)
	if err != nil {
		return err
	}
	address := func(p netip.Prefix) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}}
	}
	err = nl.AddrDel(link, address(from))
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	if err := nl.AddrReplace(link, address(to)); err != nil {
		return err
	}
	for _, r := range routes {
		if r.Gw != nil && (r.Dst == nil || r.Dst.IP.IsUnspecified()) {
			return nl.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: r.Gw})
		}
	}
	return nil
}

// BadCable does to every frame from and to a node what the impairment says, until it is healed. The
// constructors beside it make the usual kinds.
type BadCable struct {
	// ID is its row's, or one of its own; Custom if it is not set.
	ID   string
	Node string
	What string
	underlay.Impairment
	// Params are those of its identity.
	Params map[string]string
}

// percent is a share as it is given to a fault and told in its name.
func percent(share float64) string { return fmt.Sprintf("%g", 100*share) }

// PacketLoss loses a share of the frames, 0 to 1.
func PacketLoss(node string, share float64) BadCable {
	return BadCable{
		"packet-loss", node, percent(share) + " % of packets lost",
		underlay.Impairment{Loss: share},
		map[string]string{"share": percent(share)},
	}
}

// PacketDelay holds every frame back, each way, by jitter more or less.
func PacketDelay(node string, by, jitter time.Duration) BadCable {
	return BadCable{
		"packet-delay", node, fmt.Sprintf("packets delayed by %s", by),
		underlay.Impairment{Delay: by, Jitter: jitter},
		map[string]string{"by": by.String(), "jitter": jitter.String()},
	}
}

// PacketReorder holds frames back except for a share, which overtakes the others.
func PacketReorder(node string, share float64, by time.Duration) BadCable {
	return BadCable{
		"packet-reorder", node, percent(share) + " % of packets reordered",
		underlay.Impairment{Reorder: share, Delay: by},
		map[string]string{"share": percent(share), "by": by.String()},
	}
}

// PacketDuplicate has a share of the frames arrive twice.
func PacketDuplicate(node string, share float64) BadCable {
	return BadCable{
		"packet-duplicate", node, percent(share) + " % of packets duplicated",
		underlay.Impairment{Duplicate: share},
		map[string]string{"share": percent(share)},
	}
}

// PacketCorrupt flips a bit in a share of the frames.
func PacketCorrupt(node string, share float64) BadCable {
	return BadCable{
		"packet-corrupt", node, percent(share) + " % of packets corrupted",
		underlay.Impairment{Corrupt: share},
		map[string]string{"share": percent(share)},
	}
}

// RateLimit lets so many bits a second pass, each way.
func RateLimit(node string, bits int64) BadCable {
	return BadCable{
		"rate-limit", node, fmt.Sprintf("rate limited to %d kbit/s", bits/1000),
		underlay.Impairment{Rate: bits},
		map[string]string{"bits": fmt.Sprint(bits)},
	}
}

// Name implements Fault.
func (f BadCable) Name() string { return f.What + " at " + f.Node }

// Identity implements Fault.
func (f BadCable) Identity() Identity {
	i := at(f.ID, f.Node)
	i.Component, i.Params = ComponentNode, f.Params
	if _, ok := Find(f.ID); !ok {
		i = i.with("what", f.What)
	}
	return i
}

// Mechanism implements Mechanical.
func (f BadCable) Mechanism() string { return underlay.Mechanism(f.Impairment) }

// Inject implements Fault. The proof is that each effect has been counted on frames that are sent for it.
func (f BadCable) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	var other *node.Machine
	for _, name := range w.Nodes() {
		if other, err = w.Machine(name); err == nil && name != f.Node && other.On() {
			break
		}
	}
	before, err := w.Switch().Effects(f.Node)
	if err != nil {
		return err
	}
	w.OnHeal(func(context.Context) error { return w.Switch().Repair(f.Node, w.Holder()) })
	if err := w.Switch().Impair(f.Node, w.Holder(), f.Impairment); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "frames of "+f.Node+" show it", func(ctx context.Context) (bool, error) {
		// Enough for a burst to exceed a rate, and for a small share to hit one.
		// A machine that cannot send, such as for want of an answer to ARP, tries again at the next tick.
		_ = errors.Join(burst(ctx, machine, other), burst(ctx, other, machine))
		now, err := w.Switch().Effects(f.Node)
		if err != nil {
			return false, err
		}
		i := f.Impairment
		for _, p := range []struct {
			wanted      bool
			before, now uint64
		}{
			{i.Loss > 0, before.Lost, now.Lost},
			{i.Delay > 0, before.Delayed, now.Delayed},
			{i.Reorder > 0, before.Reordered, now.Reordered},
			{i.Duplicate > 0, before.Duplicated, now.Duplicated},
			{i.Corrupt > 0, before.Corrupted, now.Corrupted},
			{i.Rate > 0, before.Limited, now.Limited},
		} {
			if p.wanted && p.now <= p.before {
				return false, fmt.Errorf("effects so far: %+v", now)
			}
		}
		return true, nil
	})
}
