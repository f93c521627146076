package compare_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/reports/record"
)

// of is a run of one scenario; nil of none.
func of(v *record.Verdict) compare.Run {
	if v == nil {
		return run()
	}
	return run(verdict("s", *v))
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

func TestDiff(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		a, b *record.Verdict
		opts compare.Options
		way  string
		why  string
	}{
		"same": {a: felt(0, 0, 0), b: felt(0, 0, 0)},
		"first loss": {
			a: felt(0, 0, 0), b: felt(1, 0, 0), way: compare.Worse,
			why: "lost 0 of 1000 → 1 of 1000",
		},
		"nothing lost any more": {
			a: felt(9, s/10, 0), b: felt(0, 0, 0), way: compare.Better,
			why: "lost 9 of 1000 → 0",
		},
		"a little more lost": {a: felt(100, s, s), b: felt(140, s, s)},
		"much more lost":     {a: felt(100, s, s), b: felt(160, s, s), way: compare.Worse, why: "lost 100"},
		"strict": {
			a: felt(100, s, s), b: felt(140, s, s), opts: compare.Options{Losses: 0.1},
			way: compare.Worse, why: "lost 100",
		},
		"outage a little longer": {a: felt(9, s, s), b: felt(9, s+400*time.Millisecond, s)},
		"outage longer": {
			a: felt(9, s, s), b: felt(9, 2*s, s), way: compare.Worse,
			why: "longest outage 1.00 s → 2.00 s",
		},
		"recovery longer": {
			a: felt(9, s, s), b: felt(9, s, 4*s), way: compare.Worse,
			why: "recovery 1.00 s → 4.00 s",
		},
		"recovery shorter": {
			a: felt(9, s, 4*s), b: felt(9, s, s), way: compare.Better,
			why: "recovery 4.00 s → 1.00 s",
		},
		"no recovery any more": {
			a: felt(9, s, s), b: felt(9, s, -1), way: compare.Worse,
			why: "recovery 1.00 s → none",
		},
		"worse counts for more": {
			a: felt(9, 9*s, s), b: felt(9, s, 4*s), way: compare.Worse,
			why: "longest outage 9.00 s → 1.00 s",
		},
		"fails": {
			a: state(record.Passed), b: state(record.Failed), way: compare.Worse,
			why: "passed → failed: why",
		},
		"not proven any more": {
			a: state(record.Passed), b: state(record.Unproven), way: compare.Worse,
			why: "passed → not proven",
		},
		"repaired": {
			a: state(record.Failed), b: state(record.Passed), way: compare.Better,
			why: "failed → passed",
		},
		"not proven, now gone": {a: state(record.Unproven), b: nil, way: compare.Gone},
		"new":                  {a: nil, b: state(record.Passed), way: compare.New},
		"new and fails":        {a: nil, b: state(record.Failed), way: compare.Worse, why: "new, and failed: why"},
		"missing": {
			a: state(record.Passed), b: nil, way: compare.Worse,
			why: "not in the second run",
		},
		"missing, which may be": {
			a: state(record.Passed), b: nil, opts: compare.Options{Missing: true},
			way: compare.Gone,
		},
		"failed before, now gone": {a: state(record.Failed), b: nil, way: compare.Gone},
	} {
		got := compare.Runs(of(c.a), of(c.b), c.opts)
		if len(got.Rows) != 1 {
			t.Fatalf("%s: %+v", name, got)
		}
		r := got.Rows[0]
		if why := strings.Join(r.Why, "; "); r.Way != c.way || !strings.Contains(why, c.why) ||
			(c.why == "" && why != "") || r.Scenario() != "s" {
			t.Errorf("%s: %q, %q; want %q, %q", name, r.Way, why, c.way, c.why)
		}
		if got.GotWorse() != (c.way == compare.Worse) {
			t.Errorf("%s: got worse: %t", name, got.GotWorse())
		}
	}
}

// What was measured of a scenario that did not end is not known, so it is neither less nor more.
func TestDiffWithWhatDidNotEnd(t *testing.T) {
	open := states(map[string]string{"s": ""})
	for before, want := range map[*record.Verdict]string{
		felt(9, time.Second, 0): compare.Worse, state(record.Unproven): compare.Changed,
		state(record.Failed): compare.Better,
	} {
		d := compare.Runs(of(before), open, compare.Options{}).Rows[0]
		why := before.State + " → not finished: the scenario did not end"
		if d.Way != want || !slices.Equal(d.Why, []string{why}) {
			t.Errorf("%s: %s, %q", before.State, d.Way, d.Why)
		}
	}
}

func TestDiffAsText(t *testing.T) {
	c := compare.Runs(of(felt(0, 0, 0)), of(felt(5, 3*time.Second, time.Second)), compare.Options{})
	for _, want := range []string{
		"worse    s", "A passed", "B passed", "3.00 s",
		"lost 0 of 1000 → 5 of 1000", "1 worse, 0 as before",
	} {
		if !strings.Contains(c.Table(), want) {
			t.Errorf("want %q in\n%s", want, c.Table())
		}
	}
}

func TestDiffAsAPage(t *testing.T) {
	a := run(about(), verdict("s", *felt(0, 0, 0)), verdict("<t>", *state(record.Passed)), end())
	b := run(about(), verdict("s", *felt(7, 3*time.Second, time.Second)))
	page, err := compare.Runs(a, b, compare.Options{}).HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<title>nemesh diff: 2 worse, 0 as before</title>", "&lt;t&gt;",
		"not complete", "longest outage 0 ms → 3.00 s", "it passed, and is not in the second run",
		`<td class="n">7</td>`,
		`<span class="verdict failed">worse</span>`, "not there",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("want %q in\n%s", want, page)
		}
	}
	nests(t, page)
}
