package netconf

import (
	"net/netip"
	"strings"
	"testing"
)

func TestDefaults(t *testing.T) {
	for raw, want := range map[string]Range{
		`{"Network":"10.5.0.0/16"}`: {
			netip.MustParsePrefix("10.5.0.0/16"), 24,
			netip.MustParsePrefix("10.5.1.0/24"), netip.MustParsePrefix("10.5.255.0/24"),
		},
		`{"Network":"10.5.0.7/23"}`: {
			netip.MustParsePrefix("10.5.0.0/23"), 25,
			netip.MustParsePrefix("10.5.0.128/25"), netip.MustParsePrefix("10.5.1.128/25"),
		},
		`{"Network":"10.0.0.0/8","SubnetLen":20,"SubnetMin":"10.10.0.0","SubnetMax":"10.99.0.0"}`: {
			netip.MustParsePrefix("10.0.0.0/8"), 20,
			netip.MustParsePrefix("10.10.0.0/20"), netip.MustParsePrefix("10.99.0.0/20"),
		},
	} {
		c, err := Parse([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if c.IPv4 != want {
			t.Errorf("%s: got %+v, want %+v", raw, c.IPv4, want)
		}
		if c.Backend != (Backend{Type: "vxlan", VNI: 1}) {
			t.Errorf("%s: backend %+v", raw, c.Backend)
		}
	}
}

func TestDualStack(t *testing.T) {
	c, err := Parse([]byte(`{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fc00::/48",
		"Backend":{"type":"VXLAN","vni":7,"directrouting":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.IPv6.Min.String(); got != "fc00:0:0:1::/64" {
		t.Errorf("IPv6 SubnetMin %s", got)
	}
	if got := c.IPv6.Max.String(); got != "fc00:0:0:ffff::/64" {
		t.Errorf("IPv6 SubnetMax %s", got)
	}
	if c.Backend.Type != "vxlan" || c.Backend.VNI != 7 || !c.Backend.DirectRouting {
		t.Errorf("backend %+v", c.Backend)
	}
}

func TestErrorsNameFieldAndValue(t *testing.T) {
	const network = `{"Network":"10.0.0.0/16"`
	for raw, want := range map[string]string{
		`{"Network":`:                        "not the JSON",
		`{}`:                                 "Network is missing",
		`{"Network":"ten"}`:                  `Network "ten" is not a network`,
		`{"Network":"10.0.0.0/29"}`:          "too small",
		`{"Network":"fc00::/48"}`:            "other address family",
		network + `,"SubnetLen":17}`:         "SubnetLen 17 is too short",
		network + `,"SubnetLen":31}`:         "SubnetLen 31: /30 is the longest",
		network + `,"SubnetMin":"10.1.0.0"}`: "SubnetMin 10.1.0.0 is outside",
		network + `,"SubnetMax":"10.0.3.9"}`: "10.0.3.0 would be",
		network + `,"SubnetMin":"10.0.9.0","SubnetMax":"10.0.3.0"}`: "is above",
		network + `,"Backend":{"VNI":3}}`:                           "no Type",
		network + `,"Backend":{"Type":"vxlan","VNI":16777216}}`:     "Backend.VNI 16777216",
		network + `,"Backend":{"Type":"vxlan","Port":70000}}`:       "Backend.Port 70000",
		network + `,"Backend":{"Type":"vxlan","MTU":12}}`:           "Backend.MTU 12",
		`{"EnableIPv4":false,"Network":"10.0.0.0/16"}`:              "both false",
		network + `,"EnableIPv6":true,"IPv6Network":"10.9.0.0/16"}`: "other address family",
		network + `,"EnableIPv6":true,"IPv6Network":"fc00::/125"}`:  "/124 at most",

		network + `,"Backend":{"Type":"vxlan","VNI":10000000}}`: "flannel.10000000",
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fc00::/48","Backend":{"Type":"vxlan",` +
			`"VNI":10000}}`: "9999 at most",

		// Reserved addresses.
		`{"Network":"0.0.0.0/0"}`:                                     "holds addresses of 0.0.0.0/8",
		`{"Network":"128.0.0.0/1"}`:                                   "holds addresses of 169.254.0.0/16",
		`{"Network":"127.1.0.0/16"}`:                                  "holds addresses of 127.0.0.0/8",
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"::/0"}`: "holds addresses of ::/127",

		// IPv6 alone.
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fc00::/48","IPv6SubnetLen":49}`: "IPv6SubnetLen 49",
	} {
		_, err := Parse([]byte(raw))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n want an error with %q\n got %v", raw, want, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"Network":"10.5.0.0/16","SubnetLen":24,"Backend":{"Type":"vxlan","VNI":1}}`))
	f.Add([]byte(`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fc00::/48"}`))
	f.Add([]byte(`{"Network":"0.0.0.0/0","SubnetMin":"0.0.0.0"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := Parse(raw)
		if err != nil {
			return
		}
		for _, r := range []Range{c.IPv4, c.IPv6} {
			if r.Network.IsValid() &&
				(!r.Contains(r.Min) || !r.Contains(r.Max) || !r.Network.Contains(r.Max.Addr())) {
				t.Errorf("%s: %+v does not hold its own bounds", raw, r)
			}
		}
	})
}
