package probe

import (
	"testing"
	"time"
)

// total sums up buckets.
func total(buckets []Bucket) (sent, lost uint64) {
	for _, b := range buckets {
		sent, lost = sent+b.Sent, lost+b.Lost
	}
	return sent, lost
}

func TestSeriesIsFineWhereSomethingIsLost(t *testing.T) {
	k, start := play(func(i int) bool { return i < 503 || i >= 520 }, 1000, time.Millisecond)
	buckets := k.series.take(true)
	if sent, lost := total(buckets); sent != 1000 || lost != 17 {
		t.Fatalf("%d of %d lost", lost, sent)
	}
	if len(buckets) > 15 {
		t.Errorf("%d buckets for ten calm seconds with one outage", len(buckets))
	}
	var with []Bucket
	for _, b := range buckets {
		if b.Lost > 0 {
			with = append(with, b)
		}
		if b.Length > calm {
			t.Errorf("a bucket of %s", b.Length)
		}
	}
	if len(with) != 2 || !with[0].Start.Equal(start.Add(5*time.Second)) || with[0].Length != bucket ||
		with[0].Lost != 7 || with[1].Lost != 10 {
		t.Errorf("%+v", with)
	}
}

func TestSlowAnswersKeepTheirBucket(t *testing.T) {
	s := series{}
	start := time.Unix(1000, 0)
	for i := range 100 {
		rtt := time.Millisecond
		if i == 45 {
			rtt = 50 * time.Millisecond
		}
		s.add(start.Add(time.Duration(i)*10*time.Millisecond), false, rtt)
	}
	slow := 0
	for _, b := range s.take(true) {
		if b.RTT.Max > 2*time.Millisecond {
			slow++
			if b.Length != bucket || b.RTT.Count != 10 {
				t.Errorf("%+v", b)
			}
		}
	}
	if slow != 1 {
		t.Errorf("%d slow buckets", slow)
	}
}

func TestSeriesIsTakenOnce(t *testing.T) {
	s := series{}
	start := time.Unix(1000, 0)
	var all []Bucket
	for i := range 1000 {
		s.add(start.Add(time.Duration(i)*10*time.Millisecond), i%7 == 0, time.Millisecond)
		if i%50 == 0 {
			all = append(all, s.take(false)...)
		}
	}
	all = append(all, s.take(true)...)
	if sent, lost := total(all); sent != 1000 || lost != 143 || len(all) != 100 {
		t.Fatalf("%d of %d lost in %d buckets", lost, sent, len(all))
	}
	if len(s.take(true)) != 0 {
		t.Error("taken twice")
	}
}
