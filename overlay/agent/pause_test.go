package agent

import (
	"testing"
	"time"
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

func TestARecordThatNeverEndsIsNotWaitedForAtOnce(t *testing.T) {
	ends := time.Until(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
	if got := recheckIn(ends); got <= 0 || got > 25*time.Hour {
		t.Errorf("in %s", got)
	}
	if got := recheckIn(time.Minute); got != time.Minute+time.Second {
		t.Errorf("in %s", got)
	}
}
