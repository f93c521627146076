package diff_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/reports/diff"
	"github.com/nemesh/nemesh/reports/record"
)

// run is a run of one scenario; nil of none.
func run(v *record.Verdict) *record.Outcome {
	o := &record.Outcome{}
	if v != nil {
		o.Add(record.Event{At: 1, Kind: record.KindVerdict, Scenario: "s", Verdict: v})
	}
	return o
}

func felt(lost uint64, outage, recovery time.Duration) *record.Verdict {
	return &record.Verdict{
		State:         record.Passed,
		Sent:          1000,
		Lost:          lost,
		LongestOutage: int64(outage),
		Healed:        true,
		Recovery:      int64(recovery),
	}
}

func state(state string) *record.Verdict { return &record.Verdict{State: state, Message: "why"} }

func TestCompare(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		a, b *record.Verdict
		opts diff.Options
		way  string
		why  string
	}{
		"same": {a: felt(0, 0, 0), b: felt(0, 0, 0)},
		"first loss": {a: felt(0, 0, 0), b: felt(1, 0, 0), way: diff.Worse,
			why: "lost 0 of 1000 → 1 of 1000"},
		"nothing lost any more": {a: felt(9, s/10, 0), b: felt(0, 0, 0), way: diff.Better,
			why: "lost 9 of 1000 → 0"},
		"a little more lost": {a: felt(100, s, s), b: felt(140, s, s)},
		"much more lost":     {a: felt(100, s, s), b: felt(160, s, s), way: diff.Worse, why: "lost 100"},
		"strict": {a: felt(100, s, s), b: felt(140, s, s), opts: diff.Options{Losses: 0.1},
			way: diff.Worse, why: "lost 100"},
		"outage a little longer": {a: felt(9, s, s), b: felt(9, s+400*time.Millisecond, s)},
		"outage longer": {a: felt(9, s, s), b: felt(9, 2*s, s), way: diff.Worse,
			why: "longest outage 1.00 s → 2.00 s"},
		"recovery longer": {a: felt(9, s, s), b: felt(9, s, 4*s), way: diff.Worse,
			why: "recovery 1.00 s → 4.00 s"},
		"recovery shorter": {a: felt(9, s, 4*s), b: felt(9, s, s), way: diff.Better,
			why: "recovery 4.00 s → 1.00 s"},
		"no recovery any more": {a: felt(9, s, s), b: felt(9, s, -1), way: diff.Worse,
			why: "recovery 1.00 s → none"},
		"worse counts for more": {a: felt(9, 9*s, s), b: felt(9, s, 4*s), way: diff.Worse,
			why: "longest outage 9.00 s → 1.00 s"},
		"fails": {a: state(record.Passed), b: state(record.Failed), way: diff.Worse,
			why: "passed → failed: why"},
		"not proven any more": {a: state(record.Passed), b: state(record.Unproven), way: diff.Worse,
			why: "passed → not proven"},
		"repaired": {a: state(record.Failed), b: state(record.Passed), way: diff.Better,
			why: "failed → passed"},
		"did not end":   {a: state(record.Unproven), b: nil, way: diff.Gone},
		"new":           {a: nil, b: state(record.Passed), way: diff.New},
		"new and fails": {a: nil, b: state(record.Failed), way: diff.Worse, why: "new, and failed: why"},
		"missing": {a: state(record.Passed), b: nil, way: diff.Worse,
			why: "not in the second run"},
		"missing, which may be": {a: state(record.Passed), b: nil, opts: diff.Options{Missing: true},
			way: diff.Gone},
		"failed before, now gone": {a: state(record.Failed), b: nil, way: diff.Gone},
	} {
		got := diff.Compare(run(c.a), run(c.b), c.opts)
		if len(got.Rows) != 1 {
			t.Fatalf("%s: %+v", name, got)
		}
		r := got.Rows[0]
		if why := strings.Join(
			r.Why,
			"; ",
		); r.Way != c.way || !strings.Contains(why, c.why) ||
			(c.why == "" && why != "") {
			t.Errorf("%s: %q, %q; want %q, %q", name, r.Way, why, c.way, c.why)
		}
		if got.GotWorse() != (c.way == diff.Worse) {
			t.Errorf("%s: got worse: %t", name, got.GotWorse())
		}
	}
}

func TestTable(t *testing.T) {
	c := diff.Compare(run(felt(0, 0, 0)), run(felt(5, 3*time.Second, time.Second)), diff.Options{})
	for _, want := range []string{"worse    s", "A passed", "B passed", "3.00 s",
		"lost 0 of 1000 → 5 of 1000", "1 worse, 0 as before"} {
		if !strings.Contains(c.Table(), want) {
			t.Errorf("want %q in\n%s", want, c.Table())
		}
	}
}
