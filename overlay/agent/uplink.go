package agent

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nemesh/nemesh/overlay/kernel"
	"github.com/nemesh/nemesh/overlay/plan"
)

// findUplink looks for the uplink and takes over its addresses where the command line gives none.
func (a *Agent) findUplink() (changed bool, err error) {
	up, err := kernel.FindUplink(kernel.Selectors{
		Names: a.opts.Ifaces, Patterns: a.opts.IfacePatterns, CanReach: a.opts.IfaceCanReach,
	})
	switch {
	case err != nil:
		return false, err
	case a.raw != nil:
		up = a.settle(up)
	case !up.Addr.IsValid() && !up.Addr6.IsValid():
		return false, fmt.Errorf("uplink %s has no address yet", up.Name)
	}
	if up == a.uplink {
		return false, nil
	}
	a.uplink = up
	a.takeAddresses()
	a.log.Info("uplink found", "name", up.Name, "mtu", up.MTU, "address", up.Addr, "public", a.opts.PublicIP)
	return true, nil
}

// takeAddresses makes the uplink's addresses the node's public addresses, where the command line gives none.
// An address of a family that the network does not have is not published.
func (a *Agent) takeAddresses() {
	take := func(given, found netip.Addr, wanted bool) netip.Addr {
		switch {
		case a.raw != nil && !wanted:
			return invalid
		case given.IsValid():
			return given
		default:
			return found
		}
	}
	a.opts.PublicIP = take(a.given.PublicIP, a.uplink.Addr, a.config.EnableIPv4)
	a.opts.PublicIPv6 = take(a.given.PublicIPv6, a.uplink.Addr6, a.config.EnableIPv6)
}

// settle keeps the last address of each family while the uplink has none. A link that goes down loses its
// IPv6 addresses, and to change an address it is removed first. So the device, the lease and the other
// family stay as they are until the address is back. Addresses of families that the network does not use are
// left out, so their changes do not matter.
func (a *Agent) settle(up plan.Uplink) plan.Uplink {
	var lost []string
	keep := func(family string, wanted bool, now *netip.Addr, before netip.Addr) {
		switch {
		case !wanted:
			*now = invalid
		case !now.IsValid() && before.IsValid() && !a.hooks.forgetful:
			*now = before
			lost = append(lost, family)
		}
	}
	keep("IPv4", a.config.EnableIPv4, &up.Addr, a.uplink.Addr)
	keep("IPv6", a.config.EnableIPv6, &up.Addr6, a.uplink.Addr6)
	up.Pending6 = false
	switch now := strings.Join(lost, " and "); {
	case now == a.lost:
		return up
	case now != "":
		a.log.Warn("the uplink has lost its address of "+now+"; device and lease stay until it has one",
			"uplink", up.Name)
		a.lost = now
	default:
		a.log.Info("the uplink has its address of "+a.lost+" again", "uplink", up.Name)
		a.lost = ""
	}
	return up
}
