package ns

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tries is how often Complete reads a list that changes all the time.
const tries = 20

// Complete reads a list from the kernel. It reads again, up to 20 times in all, when a change interrupted
// the read (NLM_F_DUMP_INTR). The error is netlink.ErrDumpInterrupted when every read was interrupted.
func Complete[T any](read func() ([]T, error)) ([]T, error) {
	for range tries {
		all, err := read()
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			return all, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}

// Prefix converts a destination of netlink to a prefix. It reports false for nil.
func Prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok
}
