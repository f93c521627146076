package probe

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// StampReceived has the kernel note the time at which it receives each packet of a socket (SO_TIMESTAMPNS,
// Documentation/networking/timestamping.rst): a busy program reads its sockets late.
func StampReceived(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("have packets stamped: %w", err)
	}
	return nil
}

// ReceivedAt returns when the kernel saw the packet that came with this control data; now, if it did not say.
func ReceivedAt(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

// Monotonic gives the time of a packet that has just been read a monotonic reading, by which it compares with
// the program's own times (package time). The kernel stamps by the wall clock, which may be set while an
// echo is on its way. Go reads its two clocks one after the other, so packets of two sockets compare by ReceivedAt.
func Monotonic(stamped time.Time) time.Time {
	now := time.Now()
	return now.Add(-max(0, now.Round(0).Sub(stamped)))
}
