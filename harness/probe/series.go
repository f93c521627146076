package probe

import "time"

const (
	// bucket is the resolution of a series.
	bucket = 100 * time.Millisecond
	// calm is how long a bucket may get while nothing changes.
	calm = time.Second
	// quick is what is not told apart: on a busy machine answers take anything up to it.
	quick = 2 * time.Millisecond
)

// Bucket sums up the echoes of a pair that were sent in a short time and are decided.
type Bucket struct {
	Start      time.Time
	Length     time.Duration
	Sent, Lost uint64
	RTT        RTT
}

// PairSeries is what became of the echoes of a pair over time.
type PairSeries struct {
	From, To string
	Buckets  []Bucket
}

// series collects the buckets of a pair. Echoes are added in the order in which they were sent.
type series struct {
	start time.Time
	done  []Bucket // the last may still grow
	open  Bucket   // Sent is 0 while there is none
}

// add counts an echo that is decided.
func (s *series) add(sent time.Time, lost bool, rtt time.Duration) {
	if s.start.IsZero() {
		s.start = sent
	}
	begin := s.start.Add(sent.Sub(s.start).Truncate(bucket))
	if s.open.Sent > 0 && !s.open.Start.Equal(begin) {
		s.finish()
	}
	if s.open.Sent == 0 {
		s.open = Bucket{Start: begin, Length: bucket}
	}
	s.open.Sent++
	if lost {
		s.open.Lost++
	} else {
		s.open.RTT.add(rtt)
	}
}

// finish joins the open bucket to the one before it, if that tells nothing less, or puts it behind.
func (s *series) finish() {
	if n := len(s.done); n > 0 && joins(s.done[n-1], s.open) {
		last := &s.done[n-1]
		last.Length += s.open.Length
		last.Sent += s.open.Sent
		last.RTT.merge(s.open.RTT)
	} else {
		s.done = append(s.done, s.open)
	}
	s.open = Bucket{}
}

// joins reports whether two buckets may become one: they meet, nothing was lost, and the slowest answer of
// one is not far slower than that of the other, or both are quick.
func joins(a, b Bucket) bool {
	slow, fast := max(a.RTT.Max, b.RTT.Max), min(a.RTT.Max, b.RTT.Max)
	return a.Lost == 0 && b.Lost == 0 && a.Start.Add(a.Length).Equal(b.Start) && a.Length+b.Length <= calm &&
		slow <= max(quick, 2*fast)
}

// take returns the buckets that will not change and forgets them; with all, also those that would have.
func (s *series) take(all bool) []Bucket {
	if all {
		if s.open.Sent > 0 {
			s.finish()
		}
		done := s.done
		s.done = nil
		return done
	}
	n := max(0, len(s.done)-1)
	done := s.done[:n:n]
	s.done = s.done[n:]
	return done
}

// merge adds the round trip times of another.
func (r *RTT) merge(o RTT) {
	switch {
	case o.Count == 0:
		return
	case r.Count == 0:
		*r = o
		return
	}
	r.Min, r.Max = min(r.Min, o.Min), max(r.Max, o.Max)
	r.Total += o.Total
	r.Count += o.Count
}

// TakeSeries returns, of every pair with any, the buckets that are complete since it was called last; each
// is returned once. With all they include those that would still grow, for a mesh that has ended.
func (m *Mesh) TakeSeries(all bool) []PairSeries {
	m.mu.Lock()
	defer m.mu.Unlock()
	var taken []PairSeries
	for _, p := range m.pairs {
		if p.asked {
			continue
		}
		if buckets := p.track.series.take(all); len(buckets) > 0 {
			taken = append(taken, PairSeries{From: p.From, To: p.To, Buckets: buckets})
		}
	}
	return taken
}
