// Package netlinksafe reads complete lists from the kernel.
package netlinksafe

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Complete reads a list. It reads again, for the time patience at most, when a change has interrupted the
// read (NLM_F_DUMP_INTR, linux/netlink.h). Where another program changes addresses or routes all the time,
// that can happen many times in a row. With a patience of 0 it reads once. The error is that of the last
// read.
func Complete[T any](patience time.Duration, read func() ([]T, error)) ([]T, error) {
	for begun := time.Now(); ; {
		list, err := read()
		interrupted := errors.Is(err, netlink.ErrDumpInterrupted) || errors.Is(err, unix.EINTR)
		if !interrupted || time.Since(begun) >= patience {
			return list, err
		}
	}
}
