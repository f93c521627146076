package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/defect"
	"github.com/nemesh/nemesh/overlay/netlinksafe"
)

// healBridge removes gateway addresses of other subnets of the overlay from the bridge. They stay there when
// the node moves to another subnet, and then the bridge plugin refuses to add the new gateway. Pods of the
// old subnet still reach each other over the bridge. They cannot reach more, because pods of another node
// may have their addresses now. Addresses outside the overlay's networks, present and former, are not
// touched. healBridge also sets the MTU of the bridge, which the bridge plugin does for a new bridge only.
func (c conf) healBridge(e subnetEnv, networks []netip.Prefix) error {
	name, mtu := c.bridge(), c.mtu(e)
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	link, err := nl.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", name, err)
	}
	addrs, err := netlinksafe.Complete(c.patience(), func() ([]netlink.Addr, error) {
		return nl.AddrList(link, netlink.FAMILY_ALL)
	})
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", name, err)
	}
	if mtu > 0 && link.Attrs().MTU != mtu {
		if err := nl.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", name, mtu, err)
		}
	}
	for _, a := range addrs {
		if stale(a, e, networks) {
			if err := nl.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("take the old gateway %s off %s: %w", a.IPNet, name, err)
			}
		}
	}
	return nil
}

// patience is how long to repeat a list of addresses that the kernel interrupts.
func (c conf) patience() time.Duration {
	if c.defects.Has(defect.DumpsOnce) {
		return 0
	}
	return 5 * time.Second
}

// stale reports whether an address is a gateway of the overlay for another subnet than this node's.
func stale(a netlink.Addr, e subnetEnv, networks []netip.Prefix) bool {
	raw, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return false
	}
	ones, _ := a.Mask.Size()
	have := netip.PrefixFrom(raw.Unmap(), ones)
	for _, g := range e.Gateways {
		if have == g {
			return false
		}
	}
	for _, n := range networks {
		if n.Contains(have.Addr()) {
			return true
		}
	}
	return false
}
