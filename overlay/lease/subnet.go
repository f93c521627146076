package lease

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Subnet is what one node is leased: an IPv4 prefix, an IPv6 prefix, or one of each. A missing family is the
// zero prefix.
type Subnet struct {
	V4, V6 netip.Prefix
}

// Key returns the last part of the subnet's key in etcd: "10.5.52.0-24", dual-stack
// "10.5.52.0-24&fc00:1:2:3::-64" (flannel's MakeSubnetKey).
func (s Subnet) Key() string {
	var parts []string
	for _, p := range []netip.Prefix{s.V4, s.V6} {
		if p.IsValid() {
			parts = append(parts, p.Addr().String()+"-"+strconv.Itoa(p.Bits()))
		}
	}
	return strings.Join(parts, "&")
}

// String returns the subnet as people write it.
func (s Subnet) String() string {
	switch {
	case s.V4.IsValid() && s.V6.IsValid():
		return s.V4.String() + " and " + s.V6.String()
	case s.V6.IsValid():
		return s.V6.String()
	default:
		return s.V4.String()
	}
}

// IsZero reports whether the subnet has no family at all.
func (s Subnet) IsZero() bool { return !s.V4.IsValid() && !s.V6.IsValid() }

// Overlaps reports whether the two share an address.
func (s Subnet) Overlaps(o Subnet) bool {
	return overlap(s.V4, o.V4) || overlap(s.V6, o.V6)
}

func overlap(a, b netip.Prefix) bool { return a.IsValid() && b.IsValid() && a.Overlaps(b) }

// ParseKey reads what Key writes. Everything else is an error, also host bits and other spellings: only a
// key of the exact form is a lease.
func ParseKey(key string) (Subnet, error) {
	var s Subnet
	v4, v6, dual := strings.Cut(key, "&")
	if !dual && strings.Contains(key, ":") {
		v4, v6 = "", key
	}
	var err error
	if v4 != "" || dual {
		if s.V4, err = parsePart(v4, true); err != nil {
			return Subnet{}, err
		}
	}
	if v6 != "" || dual {
		if s.V6, err = parsePart(v6, false); err != nil {
			return Subnet{}, err
		}
	}
	if s.Key() != key || s.IsZero() {
		return Subnet{}, fmt.Errorf("%q is not the key of a subnet", key)
	}
	return s, nil
}

func parsePart(part string, is4 bool) (netip.Prefix, error) {
	addr, bits, ok := strings.Cut(part, "-")
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q is not ADDRESS-LENGTH", part)
	}
	p, err := netip.ParsePrefix(addr + "/" + bits)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is not ADDRESS-LENGTH: %w", part, err)
	case p.Addr().Is4() != is4 || p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is of the other address family", part)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has host bits set: %s would be a subnet", part, p.Masked())
	}
	return p, nil
}
