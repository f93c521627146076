package probe

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// StampReceived switches on kernel receive timestamps for a socket (SO_TIMESTAMPNS,
// Documentation/networking/timestamping.rst). A busy program reads its sockets late, so its own clock is no
// measure.
func StampReceived(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("have packets stamped: %w", err)
	}
	return nil
}

// ReceivedAt returns the kernel receive timestamp in a packet's control data. Without one it returns the
// present.
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

// Monotonic adds a monotonic clock reading to a kernel timestamp, so that it can be compared with time.Now.
// The kernel uses the wall clock, which may be set while an echo is on its way. Call it as soon as the
// packet is read. To compare packets of two sockets, use ReceivedAt: Go does not read its two clocks at the
// same moment.
func Monotonic(stamped time.Time) time.Time {
	now := time.Now()
	return now.Add(-max(0, now.Round(0).Sub(stamped)))
}
