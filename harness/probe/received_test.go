package probe_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/probe"
)

// A datagram that waits in its socket is stamped with the time at which it came, not at which it was read.
func TestReceivedAt(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := probe.StampReceived(fds[1]); err != nil {
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
	at := probe.ReceivedAt(control[:n])
	if at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) {
		t.Errorf("stamped %s after it was sent, read %s after", at.Sub(before), time.Since(before))
	}
	if at = probe.ReceivedAt(nil); time.Since(at) > time.Minute || at.IsZero() {
		t.Errorf("without a stamp: %s", at)
	}
}

// The wall clock may be set between the sending of an echo, the kernel's stamp and the reading of it.
func TestMonotonicIsNotMovedWhenTheClockIsSet(t *testing.T) {
	for what, ago := range map[string]time.Duration{
		"a minute": time.Minute, "no time": 0, "future": -time.Hour,
	} {
		now := time.Now()
		at := probe.Monotonic(now.Add(-ago).Round(0))
		if !strings.Contains(at.String(), " m=") { // see Time.String
			t.Errorf("%s: no monotonic reading: %s", what, at)
		}
		off := at.Sub(now.Add(-max(0, ago)))
		if off < -time.Millisecond || off > time.Second { // see TestReceivedAt
			t.Errorf("%s: %s after the right time", what, off)
		}
	}
}
