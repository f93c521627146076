package netlinksafe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/netlinksafe"
)

func TestAnInterruptedListIsReadAgain(t *testing.T) {
	other := errors.New("other")
	for name, c := range map[string]struct {
		patience time.Duration
		errs     []error // of the tries, one after the other
		want     error
	}{
		"whole at once":              {time.Hour, nil, nil},
		"interrupted thirty times":   {time.Hour, repeat(netlink.ErrDumpInterrupted, 30), nil},
		"interrupted by signals too": {time.Hour, []error{unix.EINTR, netlink.ErrDumpInterrupted}, nil},
		"no patience":                {0, repeat(netlink.ErrDumpInterrupted, 1), netlink.ErrDumpInterrupted},
		"another error":              {time.Hour, []error{other}, other},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			list, err := netlinksafe.Complete(c.patience, func() ([]int, error) {
				if tries++; tries <= len(c.errs) {
					return nil, c.errs[tries-1]
				}
				return []int{7}, nil
			})
			if !errors.Is(err, c.want) || (err == nil) != (len(list) == 1) {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}

func TestAListThatIsNeverWholeIsGivenUp(t *testing.T) {
	const patience = 20 * time.Millisecond
	begun := time.Now()
	_, err := netlinksafe.Complete(patience, func() ([]int, error) { return nil, netlink.ErrDumpInterrupted })
	if took := time.Since(begun); !errors.Is(err, netlink.ErrDumpInterrupted) || took < patience {
		t.Errorf("%v after %s", err, took)
	}
}

func repeat(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
