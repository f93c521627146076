package kernel

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/overlay/plan"
)

func TestFindUplink(t *testing.T) {
	h := newHost(t)
	find := func(s Selectors) (up plan.Uplink, err error) {
		err = ns.Do(h.handle, func() error {
			var err error
			up, err = FindUplink(s)
			return err
		})
		return up, err
	}
	if _, err := find(Selectors{}); err == nil || !strings.Contains(err.Error(), "--iface") {
		t.Errorf("without a default route: %v", err)
	}
	must(
		t,
		h.nl.RouteAdd(&netlink.Route{Gw: net.IP{192, 168, 0, 254}, LinkIndex: h.link("eth0").Attrs().Index}),
	)
	for name, s := range map[string]Selectors{
		"default route": {}, "name": {Names: []string{"eth0"}}, "address": {Names: []string{"192.168.0.1"}},
		"pattern": {Patterns: []string{"^eth"}}, "reach": {CanReach: "192.168.0.77"},
		"second name": {Names: []string{"nope", "eth0"}},
	} {
		up, err := find(s)
		if err != nil || up.Name != "eth0" || up.Addr.String() != "192.168.0.1" || up.MTU != 1500 {
			t.Errorf("%s: %+v, %v", name, up, err)
		}
	}
	must(t, h.nl.AddrAdd(h.link("eth0"), &netlink.Addr{IPNet: cidr("192.168.7.9/24")}))
	for name, s := range map[string]Selectors{
		"second address": {Names: []string{"192.168.7.9"}}, "its pattern": {Patterns: []string{`^192\.168\.7\.`}},
		"reached from it": {CanReach: "192.168.7.77"},
	} {
		if up, err := find(s); err != nil || up.Addr.String() != "192.168.7.9" {
			t.Errorf("%s: %+v, %v", name, up, err)
		}
	}
	if _, err := find(
		Selectors{Names: []string{"nope"}},
	); err == nil ||
		!strings.Contains(err.Error(), "nope") {
		t.Errorf("a link that is not there: %v", err)
	}
}
