package underlay

import "net/netip"

// Nth returns the nth address of a prefix. Number 0 is the address of the network itself.
func Nth(p netip.Prefix, n int) netip.Addr { return Plus(p.Masked().Addr(), n) }

// Plus returns the address n after a.
func Plus(a netip.Addr, n int) netip.Addr {
	raw := a.AsSlice()
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += int(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	sum, _ := netip.AddrFromSlice(raw)
	return sum
}
