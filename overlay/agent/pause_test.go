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
