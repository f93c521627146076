package kernel

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// blackholeMetric is the last that the kernel looks at, so that the bridge's route always comes first.
const blackholeMetric = math.MaxUint32

// blackholes makes the routes right that drop what nothing else routes, so that packets to a pod that is
// gone, or to a bridge that is not there yet, do not leave by the default route.
func (p *pass) blackholes() {
	wanted := map[netip.Prefix]bool{}
	for _, b := range p.want.Blackholes {
		wanted[b] = true
	}
	for _, family := range p.routeFamilies() {
		filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_BLACKHOLE}
		list, err := dump(func() ([]netlink.Route, error) {
			return p.nl.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		})
		if err != nil {
			p.fail(fmt.Errorf("list blackhole routes: %w", err))
			return
		}
		for _, r := range list {
			dst := fromIPNet(r.Dst)
			switch {
			case !p.insidePrefix(dst) || uint32(r.Priority) != blackholeMetric: // somebody else's
			case wanted[dst]:
				delete(wanted, dst)
			default:
				p.do("route", "removed blackhole "+dst.String(), gone(p.nl.RouteDel(&r)))
			}
		}
	}
	for _, b := range p.want.Blackholes {
		if wanted[b] {
			p.do("route", "blackhole "+b.String(), p.nl.RouteAdd(&netlink.Route{
				Dst: toIPNet(b), Type: unix.RTN_BLACKHOLE, Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT,
				Priority: blackholeMetric,
			}))
		}
	}
}
