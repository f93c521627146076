package netconf

import (
	"errors"
	"fmt"
	"net/netip"
)

// family holds the names and limits in which the two address families differ.
type family struct {
	network, subnetMin, subnetMax, subnetLen string
	is4                                      bool
	// usual is the default subnet length, maxNetwork the longest network, maxSubnet the longest subnet.
	usual, maxNetwork, maxSubnet int
}

var (
	ipv4 = family{"Network", "SubnetMin", "SubnetMax", "SubnetLen", true, 24, 28, 30}
	ipv6 = family{"IPv6Network", "IPv6SubnetMin", "IPv6SubnetMax", "IPv6SubnetLen", false, 64, 124, 126}
)

// reserved are addresses that no single host can have (RFC 6890). A network that contains them, such as
// 0.0.0.0/0, is a mistake: every route of a node would count as the overlay's.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

func (f family) parse(network, low, high string, length int) (Range, error) {
	if network == "" {
		return Range{}, fmt.Errorf("%s is missing: give one, such as %q", f.network, f.example())
	}
	p, err := netip.ParsePrefix(network)
	if err != nil {
		return Range{}, fmt.Errorf("%s %q is not a network: write it like %q", f.network, network, f.example())
	}
	p = p.Masked()
	if p.Addr().Is4() != f.is4 {
		return Range{}, fmt.Errorf("%s %q is of the other address family", f.network, network)
	}
	if p.Bits() > f.maxNetwork {
		return Range{}, fmt.Errorf("%s %q is too small: /%d at most", f.network, network, f.maxNetwork)
	}
	for _, no := range reserved {
		if p.Overlaps(no) {
			return Range{}, fmt.Errorf("%s %q holds addresses of %s, which are no pod's: choose another, such as %q",
				f.network, network, no, f.example())
		}
	}
	r := Range{Network: p, SubnetLen: length}
	switch {
	case length == 0 && p.Bits() <= f.usual-2:
		r.SubnetLen = f.usual
	case length == 0:
		r.SubnetLen = p.Bits() + 2
	case length > f.maxSubnet:
		return Range{}, fmt.Errorf("%s %d: /%d is the longest", f.subnetLen, length, f.maxSubnet)
	case length < p.Bits()+2:
		return Range{}, fmt.Errorf("%s %d is too short: the network %s must have room for at least four subnets, "+
			"so /%d or longer", f.subnetLen, length, p, p.Bits()+2)
	}
	first := netip.PrefixFrom(p.Addr(), r.SubnetLen)
	r.Min, err = f.bound(f.subnetMin, low, r, next(first))
	errMin := err
	r.Max, err = f.bound(f.subnetMax, high, r, netip.PrefixFrom(lastAddr(p), r.SubnetLen).Masked())
	if err := errors.Join(errMin, err); err != nil {
		return Range{}, err
	}
	if r.Max.Addr().Less(r.Min.Addr()) {
		return Range{}, fmt.Errorf("%s %s is above %s %s", f.subnetMin, r.Min.Addr(), f.subnetMax, r.Max.Addr())
	}
	return r, nil
}

func (f family) bound(name, value string, r Range, standard netip.Prefix) (netip.Prefix, error) {
	if value == "" {
		return standard, nil
	}
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s %q is not an address", name, value)
	}
	if !r.Network.Contains(addr) {
		return netip.Prefix{}, fmt.Errorf("%s %s is outside %s %s", name, value, f.network, r.Network)
	}
	subnet := netip.PrefixFrom(addr, r.SubnetLen)
	if subnet != subnet.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s %s is not the start of a subnet of /%d: %s would be", name, value,
			r.SubnetLen, subnet.Masked().Addr())
	}
	return subnet, nil
}

func (f family) example() string {
	if f.is4 {
		return "10.5.0.0/16"
	}
	return "fc00::/48"
}

// Next returns the subnet that follows p, of the same length.
func Next(p netip.Prefix) netip.Prefix { return next(p) }

func next(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(lastAddr(p).Next(), p.Bits())
}

// lastAddr returns the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}
