package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/plan"
)

// formerly reports whether a route on the uplink is one that the lease of a peer of a former network
// explains: the same destination and gateway, and nothing set that the overlay does not set. Any other route
// there is somebody else's, whatever its destination.
func (p *pass) formerly(raw netlink.Route, r plan.Route) bool {
	return raw.Protocol == unix.RTPROT_BOOT && raw.Type == unix.RTN_UNICAST && !r.Onlink &&
		(raw.Priority == 0 || r.Dst.Addr().Is6() && raw.Priority == 1024) && raw.Tos == 0 &&
		slices.Contains(p.want.FormerRoutes, plan.Gateway{Dst: r.Dst, Via: r.Via})
}

// formerDevices removes the devices of a former configuration, when the routes no longer need them.
func (p *pass) formerDevices() {
	for _, d := range p.want.FormerDevices {
		link, err := p.nl.LinkByName(d.Name)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			continue
		}
		if err != nil {
			p.fail(fmt.Errorf("find device %s: %w", d.Name, err))
			continue
		}
		v, ok := link.(*netlink.Vxlan)
		if ok && v.VxlanId == int(d.VNI) && toMAC(v.HardwareAddr) == d.MAC {
			p.do("device", "removed "+d.Name+" of a former configuration", p.nl.LinkDel(link))
		}
	}
}
