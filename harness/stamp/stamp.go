// Package stamp has the kernel say when it saw a packet (SO_TIMESTAMPNS, see
// Documentation/networking/timestamping.rst): a busy program reads its sockets late.
package stamp

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// On has the kernel stamp what a socket receives.
func On(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("have packets stamped: %w", err)
	}
	return nil
}

// Of returns when the kernel saw the packet that came with this control data; now, if it did not say. The
// kernel stamps by the wall clock, which may be set while an echo is on its way. So only the packet's age is
// taken from that, and the time has a monotonic reading, by which it compares with others (package time).
func Of(control []byte) time.Time {
	now := time.Now()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return now
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			seconds, nanoseconds := binary.NativeEndian.Uint64(m.Data), binary.NativeEndian.Uint64(m.Data[8:])
			age := now.Round(0).Sub(time.Unix(int64(seconds), int64(nanoseconds)))
			return now.Add(-max(0, age))
		}
	}
	return now
}
