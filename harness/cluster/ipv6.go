package cluster

import (
	"net/netip"
	"slices"

	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/probe"
)

// The IPv6 networks of a dual-stack cluster: that between the machines, and the overlay's.
var (
	Underlay6 = netip.MustParsePrefix("fd00:200::/64")
	Network6  = netip.MustParsePrefix("fc00:172::/56")
)

// Over6 is the name by which the mesh knows the IPv6 address of an endpoint.
func Over6(name string) string { return name + " (IPv6)" }

func (o Options) hasIPv6(node string) bool { return o.IPv6 && !slices.Contains(o.NoIPv6, node) }

// underlay6 is the IPv6 address beside an IPv4 one: the one whose last number is written the same.
func (o Options) underlay6(a netip.Addr) netip.Prefix {
	raw, four := Underlay6.Addr().As16(), a.As4()
	raw[14], raw[15] = four[2], four[3]
	return netip.PrefixFrom(netip.AddrFrom16(raw), Underlay6.Bits())
}

// joinMesh makes a pod an endpoint of the mesh, once for each family in which it has an address.
func (c *Cluster) joinMesh(p *pod.Pod) error {
	e := probe.Endpoint{Name: p.Name, Node: p.Machine.Name(), NS: p.NetNS, Addr: p.Addr()}
	if err := c.mesh.Add(e); err != nil {
		return err
	}
	if !p.Addr6().IsValid() {
		return nil
	}
	e.Name, e.Addr = Over6(p.Name), p.Addr6()
	return c.mesh.Add(e)
}
