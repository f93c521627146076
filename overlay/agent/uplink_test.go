package agent

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/overlay/netconf"
	"github.com/nemesh/nemesh/overlay/plan"
)

func TestUplinkThatLosesAnAddressKeepsItsLast(t *testing.T) {
	four, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	six := netip.MustParseAddr("2001:db8::1")
	full := plan.Uplink{Name: "eth0", MTU: 1500, Addr: four, Addr6: six}
	for name, c := range map[string]struct {
		v4, v6 bool
		found  []plan.Uplink // one after another
		want   plan.Uplink
		logged []string
	}{
		"IPv6 lost, seen twice": {
			v4: true, v6: true,
			found:  []plan.Uplink{{Name: "eth0", MTU: 1500, Addr: four}, {Name: "eth0", MTU: 1500, Addr: four}},
			want:   full,
			logged: []string{"has lost its address of IPv6"},
		},
		"IPv6 lost, tentative, and back": {
			v4: true, v6: true,
			found: []plan.Uplink{
				{Name: "eth0", MTU: 1500, Addr: four}, {Name: "eth0", MTU: 1500, Addr: four, Pending6: true}, full,
			},
			want:   full,
			logged: []string{"has lost its address of IPv6", "has its address of IPv6 again"},
		},
		"IPv6 lost, IPv4 changed": {
			v4: true, v6: true,
			found:  []plan.Uplink{{Name: "eth0", MTU: 1400, Addr: other}},
			want:   plan.Uplink{Name: "eth0", MTU: 1400, Addr: other, Addr6: six},
			logged: []string{"has lost its address of IPv6"},
		},
		"both lost": {
			v4: true, v6: true,
			found:  []plan.Uplink{{Name: "eth0", MTU: 1500}},
			want:   full,
			logged: []string{"has lost its address of IPv4 and IPv6"},
		},
		"IPv6, which the network has not": {
			v4:    true,
			found: []plan.Uplink{{Name: "eth0", MTU: 1500, Addr: four}, full},
			want:  plan.Uplink{Name: "eth0", MTU: 1500, Addr: four},
		},
		"IPv4, which the network has not": {
			v6:    true,
			found: []plan.Uplink{full, {Name: "eth0", MTU: 1500, Addr6: six}},
			want:  plan.Uplink{Name: "eth0", MTU: 1500, Addr6: six},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			a := &Agent{
				log: slog.New(slog.NewTextHandler(&log, nil)), raw: []byte("{}"), uplink: full,
				config: netconf.Config{EnableIPv4: c.v4, EnableIPv6: c.v6},
			}
			for _, up := range c.found {
				a.uplink = a.settle(up)
				a.takeAddresses()
			}
			if a.uplink != c.want || a.opts.PublicIP != c.want.Addr || a.opts.PublicIPv6 != c.want.Addr6 {
				t.Errorf("%+v, public %s and %s", a.uplink, a.opts.PublicIP, a.opts.PublicIPv6)
			}
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if log.Len() == 0 {
				lines = nil
			}
			if len(lines) != len(c.logged) {
				t.Fatalf("logged %q", lines)
			}
			for i, want := range c.logged {
				if !strings.Contains(lines[i], want) {
					t.Errorf("logged %q, not %q", lines[i], want)
				}
			}
		})
	}
}

func TestPublicAddressesGivenByTheOperatorStay(t *testing.T) {
	given := netip.MustParseAddr("198.51.100.7")
	a := &Agent{
		raw: []byte("{}"), given: Options{PublicIP: given}, config: netconf.Config{EnableIPv4: true},
		uplink: plan.Uplink{Addr: netip.MustParseAddr("192.0.2.1"), Addr6: netip.MustParseAddr("2001:db8::1")},
	}
	a.takeAddresses()
	if a.opts.PublicIP != given || a.opts.PublicIPv6.IsValid() {
		t.Errorf("public %s and %s", a.opts.PublicIP, a.opts.PublicIPv6)
	}
}

func TestSavedStateIsOfTheNodeWithTheSameAddress(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	now := Options{PublicIP: four, PublicIPv6: six}
	for name, c := range map[string]struct {
		saved saved
		moved bool
	}{
		"same":            {saved{PublicIP: four, PublicIPv6: six}, false},
		"another address": {saved{PublicIP: netip.MustParseAddr("192.0.2.9")}, true},
		"IPv6 only":       {saved{PublicIPv6: six}, false},
		"another of IPv6": {saved{PublicIPv6: netip.MustParseAddr("2001:db8::9")}, true},
		"an IPv4 network": {saved{PublicIP: four}, false},
		"nothing":         {saved{}, true},
	} {
		if got := c.saved.moved(now); got != c.moved {
			t.Errorf("%s: %t", name, got)
		}
	}
}
