package cni

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

const env4 = "FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.52.1/24\n" +
	"FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"

func TestParseEnv(t *testing.T) {
	e, err := parseEnv(env4)
	if err != nil || e.Gateways[0].String() != "10.5.52.1/24" || e.MTU != 1450 || !e.IPMasq {
		t.Fatalf("%+v, %v", e, err)
	}
	e, err = parseEnv("FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00:0:0:5::1/64\n" + env4)
	if err != nil || len(e.Gateways) != 2 || len(e.Networks) != 2 {
		t.Fatalf("%+v, %v", e, err)
	}
	for text, want := range map[string]string{
		"":                                     "missing FLANNEL_NETWORK",
		strings.Replace(env4, "/16", "", 1):    "is not a network",
		strings.Replace(env4, "/24", "", 1):    "is not an address with a length",
		strings.Replace(env4, "1450", "x", 1):  "FLANNEL_MTU",
		strings.Replace(env4, "1450", "-1", 1): "FLANNEL_MTU",
		strings.Replace(env4, "true", "", 1):   "FLANNEL_IPMASQ",
		env4[:40]:                              "FLANNEL_SUBNET",
	} {
		if _, err := parseEnv(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want an error with %q, got %v", text, want, err)
		}
	}
}

func FuzzParseEnv(f *testing.F) {
	f.Add(env4)
	f.Add("FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64\nFLANNEL_MTU=9\nFLANNEL_IPMASQ=0")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEnv(text)
		if err == nil && (len(e.Networks) == 0 || len(e.Networks) != len(e.Gateways) || e.MTU <= 0) {
			t.Errorf("%q was taken for %+v", text, e)
		}
	})
}

func TestMissingFilePasses(t *testing.T) {
	if _, err := readEnv(filepath.Join(t.TempDir(), "subnet.env")); !errors.Is(err, errNotReady) {
		t.Fatal(err)
	}
}

// delegateOf builds a delegate configuration and reads it back.
func delegateOf(t *testing.T, raw string) map[string]any {
	t.Helper()
	c, err := parseConf([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	e, err := parseEnv(env4)
	if err != nil {
		t.Fatal(err)
	}
	built, err := c.delegateConf(e)
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := json.Unmarshal(built, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDelegateMeansWhatFlannelsDoes(t *testing.T) {
	d := delegateOf(t, `{"cniVersion":"1.0.0","name":"cbr0","type":"flannel",
		"delegate":{"hairpinMode":true,"isDefaultGateway":true}}`)
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cniVersion":"1.0.0","hairpinMode":true,` +
		`"ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.5.52.0/24"}]],"routes":[{"dst":"10.5.0.0/16"}],` +
		`"type":"host-local"},` +
		`"isDefaultGateway":true,"isGateway":true,"mtu":1450,"name":"cbr0","type":"bridge"}`
	if string(raw) != want {
		t.Fatalf("\n got %s\nwant %s", raw, want)
	}
}

func TestWhatTheUserGaveStays(t *testing.T) {
	d := delegateOf(t, `{"name":"n","ipam":{"routes":[{"dst":"10.96.0.0/12"}],"dataDir":"/x"},
		"delegate":{"type":"ptp","mtu":9000,"ipMasq":true},"runtimeConfig":{"mac":"02:00:00:00:00:09"}}`)
	ipam, ok := d["ipam"].(map[string]any)
	if !ok || d["type"] != "ptp" || d["mtu"] != 9000.0 || d["ipMasq"] != true || d["isGateway"] != nil ||
		len(ipam["routes"].([]any)) != 2 || ipam["dataDir"] != "/x" || d["runtimeConfig"] == nil {
		t.Fatalf("%v", d)
	}
}

func TestBadConfigurations(t *testing.T) {
	for raw, want := range map[string]string{
		`{`:                                    "not the JSON",
		`{"name":"n","delegate":{"name":"x"}}`: `the field "name"`,
		`{"name":"n","delegate":{"ipam":{}}}`:  `the field "ipam"`,
		`{"name":"n","delegate":{"type":7}}`:   "must be a string",
		`{"name":"n","defects":["rust"]}`:      `"rust"`,
	} {
		if _, err := parseConf([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", raw, want, err)
		}
	}
}

func TestCacheIsPrivate(t *testing.T) {
	c := cache{filepath.Join(t.TempDir(), "flannel")}
	if err := c.put("a", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.path("a"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	ids, err := c.containers()
	if err != nil || len(ids) != 1 || ids[0] != "a" {
		t.Fatalf("%v, %v", ids, err)
	}
}

func TestNetworksOfBeforeAreRemembered(t *testing.T) {
	c := cache{t.TempDir()}
	first, second := netip.MustParsePrefix("10.5.0.0/16"), netip.MustParsePrefix("10.6.0.0/16")
	for _, step := range []struct{ now, want []netip.Prefix }{
		{[]netip.Prefix{first}, []netip.Prefix{first}},
		{[]netip.Prefix{second}, []netip.Prefix{second, first}},
		{[]netip.Prefix{first}, []netip.Prefix{first, second}},
	} {
		if got, err := c.networks(step.now); err != nil || !slices.Equal(got, step.want) {
			t.Fatalf("%v: %v, %v", step.now, got, err)
		}
	}
	if ids, err := c.containers(); err != nil || len(ids) != 0 {
		t.Errorf("taken for containers: %v, %v", ids, err)
	}
}

func TestStale(t *testing.T) {
	e, err := parseEnv(env4)
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{
		"10.5.52.1/24": false, "10.5.9.1/24": true, "192.168.0.1/24": false, "10.5.52.1/16": true,
	} {
		ip, n, err := net.ParseCIDR(addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := stale(netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: n.Mask}}, e, e.Networks); got != want {
			t.Errorf("%s: stale %t", addr, got)
		}
	}
}
