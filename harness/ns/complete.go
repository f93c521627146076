package ns

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tries bounds how often a list that changes all the time is read again.
const tries = 20

// Complete reads a list from the kernel, again when a change in between interrupted it (NLM_F_DUMP_INTR).
// The error is netlink.ErrDumpInterrupted when every try was.
func Complete[T any](read func() ([]T, error)) ([]T, error) {
	for range tries {
		all, err := read()
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			return all, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}

// Prefix converts what netlink gives for a destination; it reports false for none.
func Prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok
}
