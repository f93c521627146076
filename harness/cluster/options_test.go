package cluster

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/underlay"
)

func TestDefaultsAreTheSecondSeed(t *testing.T) {
	o := Options{}.withDefaults()
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	if got := underlay.Plus(o.FirstNode, o.Nodes-1).String(); got != "192.168.200.204" {
		t.Errorf("node04 is at %s", got)
	}
	if o.Etcd.String() != "192.168.200.10" || o.Network.String() != "172.16.0.0/16" || o.SubnetLen != 24 {
		t.Errorf("etcd %s, network %s, /%d", o.Etcd, o.Network, o.SubnetLen)
	}
}

func TestPlusCarries(t *testing.T) {
	for _, c := range []struct {
		from string
		n    int
		want string
	}{
		{"192.168.200.201", 0, "192.168.200.201"},
		{"192.168.200.201", 54, "192.168.200.255"},
		{"192.168.200.201", 55, "192.168.201.0"},
		{"192.168.255.255", 1, "192.169.0.0"},
		{"fd00::ff", 257, "fd00::200"},
	} {
		if got := underlay.Plus(netip.MustParseAddr(c.from), c.n).String(); got != c.want {
			t.Errorf("%s + %d = %s, want %s", c.from, c.n, got, c.want)
		}
	}
}

// stranger is a node that no cluster of four has.
var stranger = map[string]driver.Driver{"node09": nil}

var ip = netip.MustParseAddr

func TestBadOptionsSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no nodes":            {func(o *Options) { o.Nodes = -1 }, "at least 1"},
		"too many nodes":      {func(o *Options) { o.Nodes = 300 }, "larger Underlay, such as 192.168.0.0/16"},
		"last is broadcast":   {func(o *Options) { o.Nodes = 55 }, "do not fit"},
		"etcd is a node":      {func(o *Options) { o.Etcd = ip("192.168.200.202") }, "also a node's"},
		"etcd outside":        {func(o *Options) { o.Etcd = ip("10.0.0.1") }, "outside the underlay"},
		"etcd is the gateway": {func(o *Options) { o.Etcd = ip("192.168.200.1") }, "the switch's own"},
		"networks overlap": {
			func(o *Options) { o.Network = netip.MustParsePrefix("192.168.0.0/16") },
			"overlaps the underlay",
		},
		"network too small": {func(o *Options) {
			o.Network, o.SubnetLen = netip.MustParsePrefix("172.16.0.0/22"), 24
		}, "room for 3 subnets of /24 but there are 4 nodes"},
		"subnet too long": {func(o *Options) { o.SubnetLen = 31 }, "SubnetLen 31"},
		"VNI too large":   {func(o *Options) { o.VNI = 1 << 24 }, "24 bits"},
		"port":            {func(o *Options) { o.Port = 70000 }, "no UDP port"},
		"agent of nobody": {func(o *Options) { o.AgentOf = stranger }, "node01 to node04"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{}.withDefaults()
			c.change(&o)
			err := o.validate()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("want an error with %q, got %v", c.want, err)
			}
		})
	}
}
