package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/reports/record"
)

// Three specs share a world in which one pair loses ten echoes, goes on losing five, and is healed; a second
// pair loses nothing. Each counts what is its own, and together they count everything.
func TestFiguresAreThoseOfTheSpec(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	zero := time.Now()
	report := func(sent, lost uint64, outages ...probe.Outage) probe.Report {
		return probe.Report{Pairs: []probe.PairReport{
			{From: "a", To: "b", Sent: sent, Lost: lost, Outages: outages}, {From: "b", To: "a", Sent: sent},
		}}
	}
	long := func(length time.Duration, lost uint64, ended bool) probe.Outage {
		return probe.Outage{Start: zero.Add(s), Length: length, Lost: lost, Ended: ended}
	}
	again := probe.Outage{Start: zero.Add(9 * s), Length: 30 * ms, Lost: 3, Ended: true}
	var before counted
	healed := zero.Add(4 * s)
	for i, c := range []struct {
		report probe.Report
		healed time.Time
		want   record.Verdict
	}{
		{
			report(100, 10, long(s, 10, false)),
			time.Time{},
			record.Verdict{Sent: 200, Lost: 10, LongestOutage: int64(s)},
		},
		{
			report(120, 15, long(3500*ms, 15, true)), healed,
			record.Verdict{
				Sent: 40, Lost: 5, LongestOutage: int64(2500 * ms), Healed: true,
				Recovery: int64(500 * ms),
			},
		},
		{report(180, 15, long(3500*ms, 15, true)), healed, record.Verdict{Sent: 120}},
		{
			report(200, 18, long(3500*ms, 15, true), again), healed,
			record.Verdict{Sent: 40, Lost: 3, LongestOutage: int64(30 * ms)},
		},
	} {
		var v record.Verdict
		addSummary(&v, cluster.Summary{Report: c.report, Healed: c.healed}, before)
		before = take(zero.Add(time.Duration(i+1)*3*s), c.report)
		if v.Sent != c.want.Sent || v.Lost != c.want.Lost || v.LongestOutage != c.want.LongestOutage ||
			v.Healed != c.want.Healed || v.Recovery != c.want.Recovery {
			t.Errorf("spec %d: %+v, want %+v", i+1, v, c.want)
		}
	}
}

// A verdict names the faults that were not healed when its scenario failed, although they are by then.
func TestFaultsThatWereActive(t *testing.T) {
	var v record.Verdict
	first := record.Injection{Cluster: "1", N: 1, Name: "rust", ID: "custom"}
	other := record.Injection{Cluster: "2", N: 1, Name: "rust", ID: "custom"}
	addSummary(&v, cluster.Summary{Broke: []string{"rust"}, Injections: []record.Injection{first}}, counted{})
	addSummary(&v, cluster.Summary{Broke: []string{"rust"}, Injections: []record.Injection{other}}, counted{})
	active := other
	active.Active = true
	wereActive(&v, []record.Injection{active})
	want := []record.Injection{first, active}
	if len(v.Broke) != 2 || len(v.Active) != 1 || !slices.Equal(v.Injections, want) {
		t.Errorf("%+v", v)
	}
}

func TestBreaksNamesFaultsOfTheTable(t *testing.T) {
	got := Breaks("etcd-stop", "agent-kill")
	if !slices.Equal(got, []string{"fault:etcd-stop", "fault:agent-kill"}) {
		t.Errorf("%q", got)
	}
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, `there is no fault "etcd-stopp"`) {
			t.Errorf("%s", said)
		}
	}()
	Breaks("etcd-stopp")
}
