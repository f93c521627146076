package flannelkeys

import (
	"net/netip"
	"testing"
	"time"
)

var (
	addr = netip.MustParseAddr
	pfx  = netip.MustParsePrefix
)

func TestKeys(t *testing.T) {
	for key, want := range map[string][2]netip.Prefix{
		"10.5.3.0-24":                 {pfx("10.5.3.0/24")},
		"10.5.3.0-24&fc00:1:2:3::-64": {pfx("10.5.3.0/24"), pfx("fc00:1:2:3::/64")},
		"fc00:1:2:3::-64":             {{}, pfx("fc00:1:2:3::/64")}, // of our nodes that have no IPv4
	} {
		v4, v6, err := ParseKey(key)
		if err != nil || v4 != want[0] || v6 != want[1] {
			t.Errorf("%s: %s and %s, %v", key, v4, v6, err)
		}
		if got := Key(want[0], want[1]); got != key {
			t.Errorf("%s was written as %s", key, got)
		}
	}
	for _, key := range []string{
		"", "hello", "10.5.3.0", "10.5.3.0/24", "10.5.3.1-24", "10.5.3.0-99", "10.5.03.0-24", "10.5.3.0-24&",
		"&fc00::-64", "10.5.3.0-24&10.6.0.0-24", "10.5.3.0-24&hello", "fc00::-64&10.5.3.0-24", "fc00:0::-64",
		"fc00::1-64", "10.5.3.0-24-24", "10.5.3.0-24&fc00::-64&fc00::-64",
	} {
		if v4, v6, err := ParseKey(key); err == nil || v4.IsValid() || v6.IsValid() {
			t.Errorf("%q was taken for %s and %s, %v", key, v4, v6, err)
		}
	}
}

const (
	flannels = `{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan",` +
		`"BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}`
	hostGW = `{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"host-gw"}`
	dual   = `{"PublicIP":"192.168.64.3","PublicIPv6":"fd00::3","BackendType":"vxlan",` +
		`"BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"},` +
		`"BackendV6Data":{"VNI":2,"VtepMAC":"c6:d2:32:6f:8f:46"}}`
	only6 = `{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::3","BackendType":"vxlan",` +
		`"BackendV6Data":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:46"}}`
)

func TestLeasesAreReadAndWrittenAsFlannelDoes(t *testing.T) {
	const mac, mac6 = "c6:d2:32:6f:8f:44", "c6:d2:32:6f:8f:46"
	v4, v6 := addr("192.168.64.3"), addr("fd00::3")
	for key, c := range map[string]struct {
		value string
		want  Lease
	}{
		"10.5.1.0-24": {flannels, Lease{
			Subnet: pfx("10.5.1.0/24"), PublicIP: v4, Backend: "vxlan", VNI: 1,
			VtepMAC: mac,
		}},
		"10.5.2.0-24": {hostGW, Lease{Subnet: pfx("10.5.2.0/24"), PublicIP: v4, Backend: "host-gw"}},
		"10.5.3.0-24&fc00:3::-64": {dual, Lease{
			Subnet: pfx("10.5.3.0/24"), Subnet6: pfx("fc00:3::/64"),
			PublicIP: v4, PublicIP6: v6, Backend: "vxlan", VNI: 1, VNI6: 2, VtepMAC: mac, VtepMAC6: mac6,
		}},
		"fc00:4::-64": {only6, Lease{
			Subnet6: pfx("fc00:4::/64"), PublicIP6: v6, Backend: "vxlan", VNI6: 1,
			VtepMAC6: mac6,
		}},
	} {
		got, err := ParseLease(key, c.value)
		c.want.Key, c.want.Value = key, c.value
		if err != nil || got != c.want {
			t.Errorf("%s is read as\n%+v, want\n%+v (%v)", key, got, c.want, err)
		}
		if raw := c.want.JSON(); raw != c.value {
			t.Errorf("written is\n%s, want\n%s", raw, c.value)
		}
	}
}

func TestOddValues(t *testing.T) {
	for text, want := range map[string]Lease{
		"{}":                       {},
		`{"PublicIP":"10.0.0.1"}`:  {PublicIP: addr("10.0.0.1")},
		`{"BackendType":"udp"}`:    {Backend: "udp"},
		`{"BackendData":null}`:     {},
		`{"BackendData":{"x":[]}}`: {},
		`{"BackendData":{"VtepMAC":"C6-D2-32-6F-8F-44"}}`:       {VtepMAC: "c6:d2:32:6f:8f:44"}, // an old agent's
		`{"BackendData":{"VNI":1,"VtepMAC":"no"}}`:              {VNI: 1},
		`{"BackendData":{"VtepMAC":"02:00:00:00:00:00:00:01"}}`: {},
	} {
		got, err := ParseLease("10.5.3.0-24", text)
		want.Key, want.Value, want.Subnet = "10.5.3.0-24", text, pfx("10.5.3.0/24")
		if err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "oops", `{"PublicIP":"192.168`, `{"PublicIP":7}`, `{"PublicIP":"x"}`, `{"PublicIP":"fd00::3"}`,
		`{"PublicIPv6":"10.0.0.1"}`, `{"BackendData":7}`, `{"BackendData":{"VNI":"1"}}`,
	} {
		if got, err := ParseLease("10.5.3.0-24", text); err == nil || got != (Lease{}) {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
		if got, err := ParseOwner("10.5.3.0-24", `{"Attrs":`+text+`}`); err == nil {
			t.Errorf("%s of a record is read as %+v", text, got)
		}
	}
	if l, err := ParseLease("hello", flannels); err == nil {
		t.Errorf("a lease of no subnet: %+v", l)
	}
}

func TestOwners(t *testing.T) {
	o, err := ParseOwner("10.5.3.0-24",
		`{"Attrs":`+flannels+`,"Node":"node01","Instance":"x","Seen":"2026-08-14T12:00:00Z","TTL":90}`)
	want := time.Date(2026, 8, 14, 12, 1, 30, 0, time.UTC)
	if err != nil || o.Subnet != pfx("10.5.3.0/24") || o.PublicIP != addr("192.168.64.3") ||
		!o.Ends.Equal(want) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := ParseOwner("hello", `{"Attrs":`+flannels+`}`); err == nil {
		t.Errorf("a record of no subnet: %+v", o)
	}
}

func TestEnv(t *testing.T) {
	for text, want := range map[string]string{
		"FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.3.1/24\nFLANNEL_MTU=1450\n": "10.5.3.0-24",
		"FLANNEL_SUBNET=10.5.3.1/24\r\nFLANNEL_IPV6_SUBNET=fc00:3::1/64":              "10.5.3.0-24&fc00:3::-64",
		"FLANNEL_IPV6_SUBNET=fc00:3::1/64\n":                                          "fc00:3::-64",
	} {
		if e, err := ParseEnv([]byte(text)); err != nil || e.Key() != want {
			t.Errorf("%q is read as %q, %v", text, e.Key(), err)
		}
	}
	if e, err := ParseEnv([]byte("FLANNEL_SUBNET=10.5.3.1/24\n")); e.Gateway != pfx("10.5.3.1/24") {
		t.Errorf("gateway %s, %v", e.Gateway, err)
	}
	for _, text := range []string{"", "FLANNEL_SUBNET=10.5.3", "FLANNEL_MTU=1450\n", "FLANNEL_SUBNET"} {
		if e, err := ParseEnv([]byte(text)); err == nil || e != (Env{}) {
			t.Errorf("%q is read as %+v", text, e)
		}
	}
}

// FuzzParse: nothing that is in etcd breaks the reader, and what it reads can be written and read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{flannels, hostGW, dual, only6, "oops"} {
		f.Add("10.5.52.0-24", text)
		f.Add("10.5.52.0-24&fc00:1:2:3::-64", text)
		f.Add("fc00::-64", text)
	}
	f.Fuzz(func(t *testing.T, key, text string) {
		l, err := ParseLease(key, text)
		o, errOwner := ParseOwner(key, `{"Attrs":`+text+`}`)
		if err != nil {
			return
		}
		if errOwner != nil || o.JSON() != l.JSON() {
			t.Errorf("%s of a record became %+v, %v", text, o, errOwner)
		}
		again, err := ParseLease(Key(l.Subnet, l.Subnet6), l.JSON())
		again.Value = l.Value
		if err != nil || again != l {
			t.Errorf("%s %s became\n%+v, want\n%+v (%v)", key, text, again, l, err)
		}
	})
}
