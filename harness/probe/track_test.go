package probe

import (
	"fmt"
	"testing"
	"time"
)

// play sends one echo an interval; answered tells which come back, after rtt.
func play(answered func(i int) bool, n int, rtt time.Duration) (*track, time.Time) {
	k := &track{interval: 10 * time.Millisecond, timeout: time.Second}
	start := time.Unix(1000, 0)
	for i := range n {
		at := start.Add(time.Duration(i) * k.interval)
		if seq := k.send(at); answered(i) {
			k.reply(seq, at.Add(rtt))
		}
		k.settle(at)
	}
	k.settle(start.Add(time.Hour))
	return k, start
}

func TestNothingLost(t *testing.T) {
	k, start := play(func(int) bool { return true }, 500, time.Millisecond)
	r := k.report("a", "b")
	if r.Sent != 500 || r.Lost != 0 || len(r.Outages) != 0 || r.RTT.Mean() != time.Millisecond {
		t.Fatalf("%+v", r)
	}
	if d, ok := r.Recovery(start); d != 0 || !ok {
		t.Fatalf("recovery %s, %t", d, ok)
	}
}

func TestOutageHasStartAndLength(t *testing.T) {
	k, start := play(func(i int) bool { return i < 100 || i >= 150 }, 300, time.Millisecond)
	r := k.report("a", "b")
	if r.Sent != 300 || r.Lost != 50 || len(r.Outages) != 1 {
		t.Fatalf("%+v", r)
	}
	o := r.Outages[0]
	if o.Start != start.Add(time.Second) || o.Length != 500*time.Millisecond || o.Lost != 50 || !o.Ended {
		t.Fatalf("%+v", o)
	}
	if d, ok := r.Recovery(start.Add(1200 * time.Millisecond)); d != 300*time.Millisecond || !ok {
		t.Fatalf("recovery %s, %t", d, ok)
	}
}

func TestOutageThatLastsHasNoRecovery(t *testing.T) {
	k, start := play(func(i int) bool { return i < 100 }, 200, time.Millisecond)
	r := k.report("a", "b")
	if _, ok := r.Recovery(start); ok || r.Outages[0].Length != time.Second || r.Outages[0].Ended {
		t.Fatalf("%+v", r)
	}
}

func TestTwoOutages(t *testing.T) {
	k, _ := play(func(i int) bool { return i != 7 && i != 9 }, 20, time.Millisecond)
	r := k.report("a", "b")
	if len(r.Outages) != 2 || r.Longest() != 10*time.Millisecond || r.Lost != 2 {
		t.Fatalf("%+v", r)
	}
}

func TestLateAndDoubleAnswersChangeNothing(t *testing.T) {
	k := &track{interval: 10 * time.Millisecond, timeout: time.Second}
	start := time.Unix(1000, 0)
	late, twice := k.send(start), k.send(start)
	k.reply(late, start.Add(1001*time.Millisecond))
	k.reply(twice, start.Add(time.Millisecond))
	k.reply(twice, start.Add(2*time.Millisecond))
	k.reply(99, start)
	k.settle(start.Add(2 * time.Second))
	if k.lost != 1 || k.answered != 1 || k.rtt.Count != 1 {
		t.Fatalf("%+v", k)
	}
}

func TestUndecidedEchoesAreNotCounted(t *testing.T) {
	k := &track{interval: 10 * time.Millisecond, timeout: time.Second}
	start := time.Unix(1000, 0)
	k.send(start)
	k.settle(start.Add(time.Second))
	if r := k.report("a", "b"); r.Sent != 0 {
		t.Fatalf("%+v", r)
	}
}

// An echo that the harness itself was held up in sending has its time from when it left.
func TestEchoThatLeftLate(t *testing.T) {
	k := track{interval: 10 * time.Millisecond, timeout: time.Second}
	start := time.Unix(0, 0)
	k.send(start)
	k.left(start.Add(10 * time.Millisecond))
	if k.open[0].at != start {
		t.Errorf("an interval is no delay: %s", k.open[0].at.Sub(start))
	}
	late := start.Add(5 * time.Second)
	seq := k.send(start)
	k.left(late)
	k.reply(seq, late.Add(time.Millisecond))
	if e := k.open[1]; !e.replied || e.rtt != time.Millisecond {
		t.Errorf("%+v", e)
	}
}

// overdue says when settle would call one lost, and no sooner.
func TestOverdueIsWhatSettleWouldCallLost(t *testing.T) {
	k := track{interval: 10 * time.Millisecond, timeout: time.Second}
	start := time.Unix(0, 0)
	answered := k.send(start)
	k.send(start.Add(10 * time.Millisecond))
	k.reply(answered, start.Add(time.Millisecond))
	for after, want := range map[time.Duration]bool{
		1005 * time.Millisecond: false, 1010 * time.Millisecond: false, 1011 * time.Millisecond: true,
	} {
		if got := k.overdue(start.Add(after)); got != want {
			t.Errorf("after %s: %t", after, got)
		}
		copied := k
		copied.settle(start.Add(after))
		if lost := copied.lost == 1; lost != want {
			t.Errorf("settle after %s: %d lost", after, copied.lost)
		}
	}
}

func TestOutageIsSaidInWords(t *testing.T) {
	o := Outage{Start: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), Length: 1778000521, Lost: 89}
	if got := fmt.Sprint([]Outage{o}); got != "[1.778s from 03:04:05.006 on (89 lost, still going on)]" {
		t.Error(got)
	}
}
