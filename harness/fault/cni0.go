package fault

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/node"
)

// BridgeReaddressed gives a node's cni0 another address than its subnet's first, as a subnet of before does
// (`"cni0" already has an IP address different from …`); the heal gives the old ones back.
type BridgeReaddressed struct{ Node string }

// Name implements Fault.
func (f BridgeReaddressed) Name() string { return "cni0 of " + f.Node + " has another address" }

// Identity implements Fault.
func (f BridgeReaddressed) Identity() Identity { return at("bridge-readdress", f.Node) }

// Inject implements Fault. The proof is that the kernel took both changes.
func (f BridgeReaddressed) Inject(_ context.Context, w *Injection) error {
	machine, bridge, err := bridgeOf(w, f.Node)
	if err != nil {
		return err
	}
	nl := machine.Netlink()
	old, err := nl.AddrList(bridge, netlink.FAMILY_V4)
	if err != nil || len(old) == 0 {
		return fmt.Errorf("%w: cni0 of %s has no address (%w)", ErrNotProven, f.Node, err)
	}
	other := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 254, 254, 1), Mask: net.CIDRMask(24, 32)}}
	boot := machine.Boot()
	w.OnHeal(func(context.Context) error {
		if !machine.On() || machine.Boot() != boot {
			return nil
		}
		bridge, err := machine.Netlink().LinkByName(node.Bridge)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return fmt.Errorf("cni0 of %s is gone", f.Node) // another heal may bring it back
		}
		if err != nil {
			return err
		}
		now, err := machine.Netlink().AddrList(bridge, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, a := range now {
			if a.IPNet.String() == other.IPNet.String() {
				err = machine.Netlink().AddrDel(bridge, &a)
			}
		}
		for _, a := range old {
			err = errors.Join(err, machine.Netlink().AddrReplace(bridge, plain(a)))
		}
		return err
	})
	for _, a := range old {
		if err := nl.AddrDel(bridge, &a); err != nil {
			return fmt.Errorf("%w: %w", ErrNotProven, err)
		}
	}
	if err := nl.AddrAdd(bridge, other); err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}

// plain is an address as it is added: what the kernel derives is left to it.
func plain(a netlink.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: a.IPNet, Broadcast: a.Broadcast, Scope: a.Scope}
}

func bridgeOf(w World, name string) (*node.Machine, netlink.Link, error) {
	machine, err := w.Machine(name)
	if err != nil {
		return nil, nil, err
	}
	if !machine.On() {
		return nil, nil, fmt.Errorf("%w: %s is switched off", ErrNotProven, name)
	}
	bridge, err := machine.Netlink().LinkByName(node.Bridge)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: find cni0 of %s (the first pod brings it): %w", ErrNotProven, name, err)
	}
	return machine, bridge, nil
}

// BridgeDeleted deletes a node's cni0: its pods are cut off. No agent brings it back; the heal makes one
// with the same MAC and addresses and puts the pods on it.
type BridgeDeleted struct{ Node string }

// Name implements Fault.
func (f BridgeDeleted) Name() string { return "cni0 of " + f.Node + " deleted" }

// Identity implements Fault.
func (f BridgeDeleted) Identity() Identity { return at("bridge-delete", f.Node) }

// bridgeWas is what a bridge was like when it was deleted.
type bridgeWas struct {
	attrs netlink.LinkAttrs
	addrs []netlink.Addr
	ports []bridgePort
}

type bridgePort struct {
	index   int
	hairpin bool
}

// Inject implements Fault. The proof is that the kernel knows no cni0.
func (f BridgeDeleted) Inject(_ context.Context, w *Injection) error {
	machine, bridge, err := bridgeOf(w, f.Node)
	if err != nil {
		return err
	}
	was, err := rememberBridge(machine, bridge)
	if err != nil {
		return err
	}
	boot := machine.Boot()
	w.OnHeal(func(context.Context) error {
		if !machine.On() || machine.Boot() != boot {
			return nil
		}
		return was.restore(machine)
	})
	if err := machine.Netlink().LinkDel(bridge); err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	_, err = machine.Netlink().LinkByName(node.Bridge)
	if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("%w: cni0 of %s is still there (%w)", ErrNotProven, f.Node, err)
	}
	return nil
}

func rememberBridge(m *node.Machine, bridge netlink.Link) (*bridgeWas, error) {
	was := &bridgeWas{attrs: *bridge.Attrs()}
	var err error
	if was.addrs, err = m.Netlink().AddrList(bridge, netlink.FAMILY_V4); err != nil {
		return nil, fmt.Errorf("list the addresses of cni0: %w", err)
	}
	links, err := m.Netlink().LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the ports of cni0: %w", err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		info, err := m.Netlink().LinkGetProtinfo(l)
		if err != nil {
			return nil, fmt.Errorf("read the port %s of cni0: %w", l.Attrs().Name, err)
		}
		was.ports = append(was.ports, bridgePort{l.Attrs().Index, info.Hairpin})
	}
	return was, nil
}

// restore makes the bridge unless an ADD has made one meanwhile, and puts those ports on it that are still
// there.
func (b *bridgeWas) restore(m *node.Machine) error {
	nl := m.Netlink()
	bridge, err := nl.LinkByName(node.Bridge)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		err = nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{
			Name: node.Bridge, MTU: b.attrs.MTU, HardwareAddr: b.attrs.HardwareAddr, TxQLen: -1,
		}})
		if err != nil {
			return fmt.Errorf("make cni0 of %s: %w", m.Name(), err)
		}
		bridge, err = nl.LinkByName(node.Bridge)
	}
	if err != nil {
		return err
	}
	errs := []error{nl.LinkSetUp(bridge)}
	for _, a := range b.addrs {
		errs = append(errs, nl.AddrReplace(bridge, plain(a)))
	}
	for _, p := range b.ports {
		link, err := nl.LinkByIndex(p.index)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			continue // its pod is gone
		}
		if err == nil {
			err = errors.Join(nl.LinkSetMaster(link, bridge), nl.LinkSetHairpin(link, p.hairpin))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
