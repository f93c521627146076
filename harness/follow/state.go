package follow

import (
	"net/netip"

	"github.com/nemesh/nemesh/harness/observe"
)

// words tells a route as far as it decides where a packet goes, in the words of ip route.
func words(r observe.Route) string {
	text := observe.Route{Dst: r.Dst, Via: r.Via, Device: r.Device}.String()
	if r.Type != "unicast" {
		text = r.Type + " " + text
	}
	return text
}

// forwarding finds the entry by which a VXLAN device sends to a MAC; the all-zeros entry stands for all
// others.
func forwarding(s observe.State, device, mac string) (entry observe.Neighbour, found bool) {
	for _, e := range s.FDB {
		switch {
		case e.Device != device:
		case e.MAC == mac:
			return e, true
		case e.MAC == "00:00:00:00:00:00":
			entry, found = e, true
		}
	}
	return entry, found
}

// ruleOf finds a rule by what a trace says of it.
func ruleOf(s observe.State, v RuleVerdict) (observe.Rule, bool) {
	for _, r := range s.Rules {
		if r.Family == v.Family && r.Table == v.Table && r.Chain == v.Chain && r.Handle == v.Handle {
			return r, true
		}
	}
	return observe.Rule{}, false
}

// refusedByRPFilter reports whether reverse path filtering drops what comes in on a device from a source:
// the stricter of the device's and of all's setting counts (Documentation/networking/ip-sysctl.rst).
func refusedByRPFilter(s observe.State, device string, src netip.Addr) (back observe.Route, refused bool) {
	mode := max(s.Sysctl("conf/all/rp_filter"), s.Sysctl("conf/"+device+"/rp_filter"))
	back, found := s.Lookup(src)
	switch {
	case mode == 0:
		return back, false
	case !found || back.Type != "unicast":
		return back, true
	default:
		return back, mode == 1 && back.Device != device
	}
}

// resolved reports whether a neighbour's state has a usable MAC.
func resolved(n observe.Neighbour) bool {
	switch n.State {
	case "INCOMPLETE", "FAILED", "NONE", "":
		return false
	}
	return true
}
