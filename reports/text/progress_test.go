package text_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

const (
	long = "tampering is repaired within a second all rules flushed"
	wide = "隧道 在 一秒 之内 恢复 正常 工作 状态" // 8 groups, 2 columns a character
)

func TestProgressLine(t *testing.T) {
	for name, c := range map[string]struct {
		p       text.Progress
		columns int
		want    string
	}{
		"nothing yet": {text.Progress{}, 80, ""},
		"total known": {text.Progress{Total: 118}, 80, "0/118 done"},
		"total unknown": {
			text.Progress{Done: 3, Running: []string{"a"}, Left: time.Hour},
			80,
			"3 done · about 60 min left · running a",
		},
		"everything": {
			text.Progress{
				Total: 118, Done: 12, Failed: 2, Unproven: 1, Left: 140 * time.Second,
				Running: []string{"flannel-636", "lease"},
			},
			0,
			"12/118 done · 2 failed · 1 not proven · about 2 min left · running flannel-636, lease",
		},
		"seconds": {text.Progress{Total: 2, Done: 1, Left: 44 * time.Second}, 80, "1/2 done · about 40 s left"},
		"few":     {text.Progress{Total: 2, Done: 1, Left: time.Second}, 80, "1/2 done · a few seconds left"},
		"kept": {text.Progress{
			Total: 9, Done: 3, Failed: 1, Kept: []string{"42"}, Left: time.Hour,
			Running: []string{"a"},
		}, 80, "3/9 done · 1 failed · world 42 is kept until Ctrl-C"},
		"several kept": {
			text.Progress{Total: 9, Kept: []string{"42", "43"}},
			80,
			"0/9 done · 2 worlds are kept until Ctrl-C",
		},
		"long name": {
			text.Progress{Total: 9, Running: []string{long}},
			50,
			"0/9 done · running tampering is re…l rules flushed",
		},
		"long names": {
			text.Progress{Total: 9, Running: []string{long, "short", long}},
			80,
			"0/9 done · running tampering is …ules flushed, short, tampering is …ules flushed",
		},
		"more than fit": {
			text.Progress{Total: 9, Running: []string{long, long, long, long}},
			80,
			"0/9 done · running tampering is r…rules flushed, tampering is r…rules flushed +2",
		},
		"no room for a name": {text.Progress{Total: 9, Running: []string{long, long}}, 30, "0/9 done · 2 running"},
		"no room for the number": {
			text.Progress{Total: 9, Left: 30 * time.Second, Running: []string{long}},
			18,
			"0/9 done",
		},
		"no room for the time": {
			text.Progress{Total: 9, Left: 30 * time.Second, Running: []string{long}},
			25,
			"0/9 done · 1 running",
		},
		"hardly any room": {text.Progress{Total: 118, Done: 12}, 6, "12/…ne"},
		"one column":      {text.Progress{Total: 118, Done: 12}, 1, "…"},
		"wide name": {
			text.Progress{Total: 9, Running: []string{wide}},
			44,
			"0/9 done · running 隧道 在 一秒…常 工作 状态",
		},
		"wide name, odd": {
			text.Progress{Total: 9, Running: []string{wide}},
			45,
			"0/9 done · running 隧道 在 一秒 …常 工作 状态",
		},
		"combining": {
			text.Progress{Total: 9, Running: []string{"cafe\u0301"}},
			23,
			"0/9 done · running cafe\u0301",
		},
		"control characters": {
			text.Progress{Total: 9, Running: []string{"a\n\x1b[31mb\x1b[0m\tc\r"}},
			80,
			"0/9 done · running a b c ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := text.Style{}.Progress(c.p, c.columns)
			if got != c.want {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
		})
	}
}

// No state and no width gives a line that is too wide or has a line break.
func TestProgressFits(t *testing.T) {
	names := []string{
		long, wide, "flannel-636", "", "e\u0301\u0301e", "line\nbreak",
		strings.Repeat("🦀", 14),
	}
	for columns := 1; columns < 160; columns += 1 + columns/20 {
		for n := range len(names) + 1 {
			for _, left := range []time.Duration{0, time.Second, time.Hour} {
				p := text.Progress{
					Total: 118, Done: n, Failed: n % 3, Unproven: n % 2, Running: names[:n],
					Left: left,
				}
				plain := text.Style{}.Progress(p, columns)
				if strings.ContainsAny(plain, "\n\r\t\x1b") {
					t.Fatalf("%q", plain)
				}
				if got := columnsOf(plain); got > columns {
					t.Fatalf("%d columns, not %d: %q", got, columns, plain)
				}
				if got := record.Plain(text.Style{Color: true}.Progress(p, columns)); got != plain {
					t.Fatalf("with colours %q, without %q", got, plain)
				}
			}
		}
	}
}

// columnsOf counts as the names of this test need it.
func columnsOf(s string) (n int) {
	for _, r := range s {
		switch {
		case r == '\u0301':
		case r > 0x2fff:
			n += 2
		default:
			n++
		}
	}
	return n
}

func TestProgressColors(t *testing.T) {
	got := text.Style{Color: true}.Progress(text.Progress{Total: 9, Done: 3, Failed: 1}, 80)
	if want := "3/9 done · \x1b[31m1 failed\x1b[0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// run makes the events of a run: scenarios that ended, with their seconds, and those that run, with the
// second at which they began.
func run(planned int, ended, running map[string]int) *record.Outcome {
	o := &record.Outcome{}
	o.Add(record.Event{At: 1, Kind: record.KindPlan, Plan: &record.Plan{Scenarios: planned}})
	for name, s := range ended {
		o.Add(record.Event{At: 1, Kind: record.KindBegin, Scenario: name})
		o.Add(record.Event{
			At: 2, Kind: record.KindVerdict, Scenario: name,
			Verdict: &record.Verdict{State: record.Passed, Duration: int64(s) * 1e9},
		})
	}
	for name, s := range running {
		o.Add(record.Event{At: int64(s)*1e9 + 1, Kind: record.KindBegin, Scenario: name})
	}
	return o
}

func TestTimeLeft(t *testing.T) {
	took := func(names string, seconds ...int) map[string]time.Duration {
		all := map[string]time.Duration{}
		for i, s := range seconds {
			all[names[i:i+1]] = time.Duration(s) * time.Second
		}
		return all
	}
	type m = map[string]int
	const now = 100*1e9 + 1 // second 100
	for name, c := range map[string]struct {
		o       *record.Outcome
		earlier text.Earlier
		procs   int
		want    int // seconds
	}{
		"nothing is known":   {run(9, nil, m{"a": 99}), nil, 2, 0},
		"no plan":            {run(0, m{"a": 1}, m{"b": 99}), text.Earlier{took("b", 10)}, 1, 0},
		"from this run":      {run(5, m{"a": 10, "b": 20}, nil), nil, 1, 3 * 15},
		"side by side":       {run(6, m{"a": 10, "b": 20}, nil), nil, 2, 2 * 15},
		"of this run, begun": {run(3, m{"a": 10, "b": 20}, m{"c": 90}), nil, 1, 5},
		"known by name":      {run(3, m{"a": 1}, nil), text.Earlier{took("abc", 50, 20, 40)}, 1, 60},
		"the longest counts": {run(3, m{"a": 1}, nil), text.Earlier{took("abc", 50, 20, 40)}, 2, 40},
		"running":            {run(1, nil, m{"a": 90}), text.Earlier{took("a", 15)}, 4, 5},
		"running too long":   {run(2, nil, m{"a": 50}), text.Earlier{took("ab", 15, 7)}, 1, 7},
		"newest first":       {run(1, nil, m{"a": 100}), text.Earlier{took("a", 15), took("a", 99)}, 1, 15},
		"an older run was the same": {
			run(2, m{"a": 1}, nil),
			text.Earlier{took("abcd", 1, 10, 100, 100), took("ab", 1, 10)},
			1, 10,
		},
		"newest first ahead": {
			run(2, m{"a": 1}, nil),
			text.Earlier{took("bc", 6, 8), took("bcd", 90, 90, 10)},
			1, 8,
		},
		"part of an earlier run": {run(2, m{"a": 1}, nil), text.Earlier{took("abc", 50, 20, 40)}, 1, 30},
		"new beside known":       {run(2, m{"a": 1}, m{"x": 100}), text.Earlier{took("abc", 50, 20, 40)}, 1, 30},
		"all done":               {run(1, m{"a": 1}, nil), text.Earlier{took("a", 50)}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := text.ProgressOf(c.o, c.earlier, c.procs, now)
			if got := p.Left; got != time.Duration(c.want)*time.Second {
				t.Errorf("%s, want %d s", got, c.want)
			}
		})
	}
}

func TestProgressOf(t *testing.T) {
	o := run(7, map[string]int{"done": 1}, map[string]int{"second": 20, "first": 10})
	for i, state := range []string{record.Failed, record.Failed, record.Unproven} {
		o.Add(record.Event{
			At: 3, Kind: record.KindVerdict, Scenario: fmt.Sprint(i),
			Verdict: &record.Verdict{State: state},
		})
	}
	got := fmt.Sprintf("%+v", text.ProgressOf(o, nil, 1, 3))
	want := "{Total:7 Done:4 Failed:2 Unproven:1 Running:[first second] "
	if !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s…", got, want)
	}
	summary := text.Style{}.Summary(o)
	if want := "\n1 passed, 2 failed, 1 not proven, 2 not finished, 1 not started\n"; summary != want {
		t.Errorf("%q, want %q", summary, want)
	}
	// A record of an older nemesh has neither plan nor begin.
	old := outcome(t)
	if p := text.ProgressOf(old, nil, 1, 0); p.Total != 0 || p.Done != 3 || len(p.Running) != 0 {
		t.Errorf("%+v", p)
	}
}
