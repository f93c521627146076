// Package netlinksafe reads lists of the kernel whole.
package netlinksafe

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Complete reads a list, again for as long as patience when a change in between has interrupted it
// (NLM_F_DUMP_INTR, linux/netlink.h): where another program changes addresses or routes all the time, most
// lists of many are of no use, one after the other. Without patience it reads once. The error is that of the
// last try.
func Complete[T any](patience time.Duration, read func() ([]T, error)) ([]T, error) {
	for begun := time.Now(); ; {
		list, err := read()
		interrupted := errors.Is(err, netlink.ErrDumpInterrupted) || errors.Is(err, unix.EINTR)
		if !interrupted || time.Since(begun) >= patience {
			return list, err
		}
	}
}
