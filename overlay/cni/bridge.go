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

// healBridge takes gateway addresses of another subnet of the overlay off the bridge. They are left when the
// node has moved to another subnet, and the bridge plugin refuses to add the new gateway beside them. Pods
// of the old subnet still reach each other over the bridge; nothing more of theirs can be kept, because
// their addresses may be another node's pods' now. Addresses outside the overlay's networks, those of now
// and those that pods were set up in before, are not touched. The bridge gets the MTU that new pods get,
// which the bridge plugin gives to a new bridge only.
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

// patience is for how long a list of addresses that the kernel changes meanwhile is read again.
func (c conf) patience() time.Duration {
	if c.defects.Has(defect.DumpsOnce) {
		return 0
	}
	return 5 * time.Second
}

// stale reports whether an address is a gateway of the overlay's that is not this node's now.
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
