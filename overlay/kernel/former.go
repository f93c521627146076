package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/plan"
)

// formerly reports whether a route on the uplink is explained by a peer's lease in a former network: it has
// the same destination and gateway, and no attribute that the overlay does not set. Other routes there
// belong to other programs, whatever their destination.
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
