package lease

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/nemesh/nemesh/overlay/netconf"
)

func TestANodeThatGainsOrLosesAFamilyKeepsTheOther(t *testing.T) {
	both, err := netconf.Parse([]byte(
		`{"Network":"10.0.0.0/24","SubnetLen":26,"EnableIPv6":true,"IPv6Network":"fc00::/56"}`))
	if err != nil {
		t.Fatal(err)
	}
	v6 := netip.MustParsePrefix("fc00:0:0:7::/64")
	only4 := Subnet{V4: netip.MustParsePrefix("10.0.0.128/26")}
	dual := Subnet{V4: only4.V4, V6: v6}
	for name, c := range map[string]struct {
		held, had Subnet
		config    netconf.Config
		want      string
	}{
		"gains, held":  {held: only4, config: both, want: "10.0.0.128-26&fc00:0:0:1::-64"},
		"gains, had":   {had: only4, config: both, want: "10.0.0.128-26&fc00:0:0:1::-64"},
		"loses, held":  {held: dual, config: small, want: "10.0.0.128-26"},
		"loses, had":   {had: dual, config: small, want: "10.0.0.128-26"},
		"keeps both":   {held: dual, config: both, want: "10.0.0.128-26&fc00:0:0:7::-64"},
		"has had none": {config: both, want: "10.0.0.64-26&fc00:0:0:1::-64"},
	} {
		r, v := request(), View{Revision: 12}
		r.Config, r.IP6, r.Previous, r.Mixed = c.config, netip.MustParseAddr("fd00::1"), c.had, true
		if !c.held.IsZero() {
			v.Leases = []Lease{{Subnet: c.held, Attrs: of("1.1.1.1"), ID: 7, ModRevision: 9}}
		}
		got, err := Choose(v, r)
		if err != nil || got.Subnet.Key() != c.want || got.Since != 12 {
			t.Errorf("%s: %s since %d, %v", name, got.Subnet.Key(), got.Since, err)
		}
		if moved := !c.held.IsZero() && got.Subnet != c.held; moved != (got.Unfit != nil) {
			t.Errorf("%s: gives up %v", name, got.Unfit)
		}
	}
	// What it had in part is another's now.
	r := request()
	r.Config, r.Previous = both, only4
	taken := View{Leases: []Lease{{Subnet: only4, Attrs: of("2.2.2.2")}}}
	if got, err := Choose(taken, r); err != nil || got.Subnet.V4.Overlaps(only4.V4) {
		t.Errorf("%s, %v", got.Subnet, err)
	}
}

func TestNodesOfIPv6OnlyAreToldApart(t *testing.T) {
	six := func(n string) Attrs {
		return Attrs{PublicIPv6: netip.MustParseAddr("fd00::" + n), BackendType: "vxlan"}
	}
	at := func(n string) Subnet { return Subnet{V6: netip.MustParsePrefix("fc00:0:0:" + n + "::/64")} }
	now := time.Now()
	v := View{}
	for _, n := range []string{"1", "2", "3"} {
		v.Leases = append(v.Leases, Lease{Subnet: at(n), Attrs: six(n), ID: 1})
		v.Owners = append(v.Owners, Owner{Subnet: at(n), Attrs: six(n), Node: n, Instance: n, Seen: now, TTL: 60})
	}
	v.Leases = v.Leases[:2] // the third's has ended; its record explains it
	peers, doubt, _ := Peers(v, at("1"), netip.Addr{}, netip.MustParseAddr("fd00::1"), time.Hour, now, all)
	if len(peers) != 2 || peers[0].Subnet != at("2") || peers[1].Subnet != at("3") || len(doubt) != 0 {
		t.Errorf("peers %v, in doubt %v", peers, doubt)
	}
	r := request()
	r.Config, r.IP, r.IP6 = netconf.Config{EnableIPv6: true}, netip.Addr{}, netip.MustParseAddr("fd00::2")
	_, err := Choose(v, r)
	var taken *TakenError
	if !errors.As(err, &taken) || taken.IP != r.IP6 || taken.Owner.Node != "2" {
		t.Errorf("a second node with the address of the second: %v", err)
	}
}
