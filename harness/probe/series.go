package probe

import "time"

const (
	// bucket is the resolution of a series.
	bucket = 100 * time.Millisecond
	// calm is the greatest length of a bucket while nothing changes.
	calm = time.Second
	// quick is a round trip time below which differences do not matter: a busy machine causes them.
	quick = 2 * time.Millisecond
)

// Bucket sums up the decided echoes of a pair that were sent in a short time.
type Bucket struct {
	Start      time.Time
	Length     time.Duration
	Sent, Lost uint64
	RTT        RTT
}

// PairSeries are the echoes of a pair over time, in buckets.
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

// finish closes the open bucket. It joins the bucket to the one before, if no information is lost, or
// appends it.
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

// joins reports whether two buckets may become one: one follows the other, nothing was lost, and their
// slowest answers are about as slow, or both quick.
func joins(a, b Bucket) bool {
	slow, fast := max(a.RTT.Max, b.RTT.Max), min(a.RTT.Max, b.RTT.Max)
	return a.Lost == 0 && b.Lost == 0 && a.Start.Add(a.Length).Equal(b.Start) && a.Length+b.Length <= calm &&
		slow <= max(quick, 2*fast)
}

// take returns the buckets that will not change any more, and removes them. With all it returns the others
// too.
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

// TakeSeries returns the buckets of each pair that were completed since the last call. Each bucket is
// returned once. With all it also returns buckets that could still grow; use that when the mesh has ended.
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
