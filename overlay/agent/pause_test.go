package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nemesh/nemesh/overlay/lease"
)

func TestPauseGrowsWhileNewsKeepComing(t *testing.T) {
	const ms = time.Millisecond
	pause := publishPause
	for _, step := range []struct{ since, want time.Duration }{
		{time.Hour, 50 * ms}, // the first after a calm is followed soon
		{50 * ms, 100 * ms},
		{100 * ms, 200 * ms},
		{250 * ms, 200 * ms}, // a peer is never known later than that
		{401 * ms, 50 * ms},
	} {
		if pause = nextPause(pause, step.since); pause != step.want {
			t.Errorf("after %s: %s, want %s", step.since, pause, step.want)
		}
	}
}

func TestARenewalIsNotPutOffByWhatHappensMeanwhile(t *testing.T) {
	a := Agent{opts: Options{LeaseRenew: 4 * time.Second}, own: lease.Lease{ModRevision: 1}}
	for name, c := range map[string]struct {
		renewed, tried time.Duration // how long ago
		want           time.Duration
	}{
		"renewed just now":                   {0, 0, 4 * time.Second},
		"due, with news coming in all day":   {4 * time.Second, 4 * time.Second, 0},
		"failed just now":                    {4 * time.Second, 0, time.Second},
		"failed, and news come in since":     {5 * time.Second, 700 * time.Millisecond, 300 * time.Millisecond},
		"failed, and the next try is due":    {5 * time.Second, time.Second, 0},
		"half of the time to the next is up": {2 * time.Second, 2 * time.Second, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) { // its clock stands still
			a.renewed, a.tried = time.Now().Add(-c.renewed), time.Now().Add(-c.tried)
			if got := a.untilRenewal(); got != c.want {
				t.Errorf("%s: in %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestARecordThatNeverEndsIsNotWaitedForAtOnce(t *testing.T) {
	ends := time.Until(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
	if got := recheckIn(ends); got <= 0 || got > 25*time.Hour {
		t.Errorf("in %s", got)
	}
	if got := recheckIn(time.Minute); got != time.Minute+time.Second {
		t.Errorf("in %s", got)
	}
}
