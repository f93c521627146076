package ns_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

func TestCompleteReadsAgainWhatWasInterrupted(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		answers []error // the last one repeats
		want    error
		reads   int
	}{
		"at once":           {[]error{nil}, nil, 1},
		"interrupted twice": {[]error{netlink.ErrDumpInterrupted, unix.EINTR, nil}, nil, 3},
		"always":            {[]error{netlink.ErrDumpInterrupted}, netlink.ErrDumpInterrupted, 20},
		"another error":     {[]error{refused}, refused, 1},
	} {
		reads := 0
		_, err := ns.Complete(func() ([]int, error) {
			reads++
			return nil, c.answers[min(reads, len(c.answers))-1]
		})
		if !errors.Is(err, c.want) || reads != c.reads {
			t.Errorf("%s: %v after %d reads", name, err, reads)
		}
	}
}
