package probe

import (
	"fmt"
	"time"
)

// track is the state of one pair, without sockets or clocks. Echoes are sent in order. Each is decided, in
// the same order, as answered or lost.
type track struct {
	interval, timeout time.Duration

	sent, answered, lost uint64
	next                 uint32
	open                 []echo // sent and not decided, oldest first; bounded by the time-out
	outages              []Outage
	inOutage             bool
	rtt                  RTT
	errnos               map[string]uint64
	series               series
}

type echo struct {
	seq     uint32
	at      time.Time
	replied bool
	rtt     time.Duration
}

// send notes an echo that goes out at t and returns its number.
func (k *track) send(t time.Time) uint32 {
	seq := k.next
	k.next++
	k.sent++
	k.open = append(k.open, echo{seq: seq, at: t})
	return seq
}

// left notes that the echo sent last had left by t. If that is more than an interval after send, the harness
// itself was late, and the echo's time begins at t.
func (k *track) left(t time.Time) {
	if last := &k.open[len(k.open)-1]; t.Sub(last.at) > k.interval {
		last.at = t
	}
}

// overdue reports whether settle(t) would call an echo lost.
func (k *track) overdue(t time.Time) bool {
	for _, e := range k.open {
		if t.Sub(e.at) <= k.timeout {
			return false
		}
		if !e.replied {
			return true
		}
	}
	return false
}

// refused notes that the kernel refused to send an echo. The echo is decided as lost later.
func (k *track) refused(err error) {
	if k.errnos == nil {
		k.errnos = map[string]uint64{}
	}
	k.errnos[err.Error()]++
}

// reply notes that the answer to echo seq arrived at t. An answer after the time-out, or a second one, is
// ignored.
func (k *track) reply(seq uint32, t time.Time) {
	if len(k.open) == 0 {
		return
	}
	i := int(seq - k.open[0].seq) // numbers are consecutive
	if i < 0 || i >= len(k.open) || k.open[i].replied || t.Sub(k.open[i].at) > k.timeout {
		return
	}
	k.open[i].replied, k.open[i].rtt = true, max(0, t.Sub(k.open[i].at))
	k.rtt.add(k.open[i].rtt)
}

// settle decides the echoes that are answered and those that were sent more than the time-out before t.
func (k *track) settle(t time.Time) {
	for len(k.open) > 0 {
		e := k.open[0]
		switch {
		case e.replied:
			k.answered++
			k.series.add(e.at, false, e.rtt)
			if k.inOutage {
				last := &k.outages[len(k.outages)-1]
				last.Length, last.Ended = e.at.Sub(last.Start), true
				k.inOutage = false
			}
		case t.Sub(e.at) > k.timeout:
			k.lost++
			k.series.add(e.at, true, 0)
			if !k.inOutage {
				k.outages = append(k.outages, Outage{Start: e.at})
				k.inOutage = true
			}
			last := &k.outages[len(k.outages)-1]
			last.Lost++
			last.Length = e.at.Sub(last.Start) + k.interval
		default:
			return
		}
		k.open = k.open[1:]
	}
}

// RTT sums up round trip times.
type RTT struct {
	Min, Max, Total time.Duration
	Count           uint64
}

func (r *RTT) add(d time.Duration) {
	d = max(d, 0)
	if r.Count == 0 || d < r.Min {
		r.Min = d
	}
	r.Max = max(r.Max, d)
	r.Total += d
	r.Count++
}

// Mean returns the mean round trip time; 0 if there was none.
func (r RTT) Mean() time.Duration {
	if r.Count == 0 {
		return 0
	}
	return r.Total / time.Duration(r.Count)
}

// Outage is a run of consecutive lost echoes of a pair.
type Outage struct {
	// Start is when the first lost echo was sent. Length is the time until the first answered echo after it was
	// sent. While there is none, it is the time until one interval after the last lost echo. Both are as exact
	// as the interval and the grain in which a mesh sends (Mesh.send).
	Start  time.Time
	Length time.Duration
	Lost   uint64
	// Ended is false while the outage lasts.
	Ended bool
}

// String returns the outage as text for people.
func (o Outage) String() string {
	lasts := ""
	if !o.Ended {
		lasts = ", still going on"
	}
	return fmt.Sprintf("%s from %s on (%d lost%s)", o.Length.Round(time.Millisecond),
		o.Start.Format("15:04:05.000"), o.Lost, lasts)
}

// PairReport counts the echoes of one pair so far.
type PairReport struct {
	From, To string
	// FromNode and ToNode are the nodes on which the two are (Endpoint.Node). IPv6 says that they talk over it.
	FromNode, ToNode string
	IPv6             bool
	// Sent counts the decided echoes. Those that may still be answered in time are not counted.
	Sent, Lost uint64
	Outages    []Outage
	RTT        RTT
	// Errnos counts the echoes that the kernel refused to send, by errno. They count as lost as well.
	Errnos map[string]uint64
}

func (k *track) report(from, to string) PairReport {
	r := PairReport{From: from, To: to, Sent: k.answered + k.lost, Lost: k.lost, RTT: k.rtt}
	r.Outages = append(r.Outages, k.outages...)
	if len(k.errnos) > 0 {
		r.Errnos = map[string]uint64{}
		for text, n := range k.errnos {
			r.Errnos[text] = n
		}
	}
	return r
}

// On reports whether an end of the pair is on a node.
func (r PairReport) On(node string) bool { return r.FromNode == node || r.ToNode == node }

// Longest returns the length of the longest outage; 0 if there was none.
func (r PairReport) Longest() time.Duration {
	var longest time.Duration
	for _, o := range r.Outages {
		longest = max(longest, o.Length)
	}
	return longest
}

// Recovery returns the time from t to the end of the pair's last outage. It is 0 if no outage lasted beyond
// t, and false while an outage lasts.
func (r PairReport) Recovery(t time.Time) (time.Duration, bool) {
	if len(r.Outages) == 0 {
		return 0, true
	}
	last := r.Outages[len(r.Outages)-1]
	if !last.Ended {
		return 0, false
	}
	return max(0, last.Start.Add(last.Length).Sub(t)), true
}
