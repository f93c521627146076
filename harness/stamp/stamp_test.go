package stamp_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/stamp"
)

// A datagram that waits in its socket is stamped with the time at which it came, not at which it was read.
func TestOf(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := stamp.On(fds[1]); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if _, err := unix.Write(fds[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	<-time.After(10 * time.Millisecond) // it waits in its socket: that is what is tested
	control := make([]byte, 128)
	_, n, _, _, err := unix.Recvmsg(fds[1], make([]byte, 8), control, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's clock and Go's are the same; the margin is for their being read apart.
	at := stamp.Of(control[:n])
	if at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) {
		t.Errorf("stamped %s after it was sent, read %s after", at.Sub(before), time.Since(before))
	}
	if at = stamp.Of(nil); time.Since(at) > time.Minute || at.IsZero() {
		t.Errorf("without a stamp: %s", at)
	}
}

// The wall clock may be set between the sending of an echo, the kernel's stamp and the reading of it.
func TestOfIsNotMovedWhenTheClockIsSet(t *testing.T) {
	for what, stamped := range map[string]time.Time{
		"now":             time.Now(),
		"an hour forward": time.Now().Add(time.Hour),
	} {
		control := make([]byte, unix.CmsgSpace(16))
		header := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		header.Level, header.Type = unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS
		header.SetLen(unix.CmsgLen(16))
		data := control[unix.CmsgLen(0):]
		binary.NativeEndian.PutUint64(data, uint64(stamped.Unix()))
		binary.NativeEndian.PutUint64(data[8:], uint64(stamped.Nanosecond()))
		at := stamp.Of(control)
		if !strings.Contains(at.String(), " m=") { // see Time.String
			t.Errorf("%s: without a monotonic reading: %s", what, at)
		}
		if at.After(time.Now()) {
			t.Errorf("%s: seen in the future: %s", what, at)
		}
	}
}
