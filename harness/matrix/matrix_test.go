package matrix_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/matrix"
	"github.com/nemesh/nemesh/reports/record"
)

// run writes the record of a run and returns its folder.
func run(t *testing.T, reports, name string, cut bool, verdicts ...record.Event) {
	t.Helper()
	dir := filepath.Join(reports, "runs", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := record.Open(filepath.Join(dir, "record.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	w.Write(record.Event{Kind: record.KindRun, Run: &record.Run{
		Version: record.Version, Agent: "flanneld", AgentVersion: "v9",
	}})
	for _, v := range verdicts {
		w.Write(v)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if cut {
		f, err := os.OpenFile(filepath.Join(dir, "record.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(`{"at":1,"ki`); err != nil {
			t.Fatal(err)
		}
	}
}

func verdict(scenario string, v record.Verdict) record.Event {
	return record.Event{Kind: record.KindVerdict, Scenario: scenario, Verdict: &v}
}

func TestTableGoesOnWhereItStopped(t *testing.T) {
	reports := t.TempDir()
	table := matrix.New([]string{"a", "b", "c"}, "theirs", "none")
	run(
		t,
		reports,
		"1",
		true,
		verdict("a", record.Verdict{State: record.Failed, Sent: 10, Lost: 3, Healed: true,
			Recovery: int64(1500 * time.Millisecond)}),
		verdict("b", record.Verdict{State: record.Unproven, Interrupted: true}),
	)
	if err := os.MkdirAll(filepath.Join(reports, "runs", "2"), 0o755); err != nil {
		t.Fatal(err) // a run that was ended before its record began
	}
	if err := table.AddRuns("theirs", reports); err != nil {
		t.Fatal(err)
	}
	if missing := table.Missing("theirs"); !slices.Equal(missing, []string{"b", "c"}) {
		t.Errorf("missing %q: what was interrupted has no verdict", missing)
	}
	run(t, reports, "3", false, verdict("a", record.Verdict{State: record.Passed, Sent: 9}),
		verdict("b", record.Verdict{State: record.Skipped, Message: "it lacks | \"leave\""}),
		verdict("stranger", record.Verdict{State: record.Failed}))
	if err := table.AddRuns("theirs", reports); err != nil {
		t.Fatal(err)
	}
	if got := table.Cell("a", "theirs"); got.State != record.Passed || got.Felt() != "lost 0 of 9" {
		t.Errorf("the later run wins: %+v", got)
	}
	if err := table.AddRuns("none", filepath.Join(reports, "nowhere")); err != nil {
		t.Errorf("no runs yet: %v", err)
	}
	if n := table.Count("theirs", record.Passed); n != 1 {
		t.Errorf("%d passed", n)
	}
}

func TestRendered(t *testing.T) {
	out := t.TempDir()
	reports := filepath.Join(out, "theirs")
	table := matrix.New([]string{"a<b>|c", "not run"}, "theirs")
	run(
		t,
		reports,
		"1",
		false,
		verdict("a<b>|c", record.Verdict{State: record.Failed, Sent: 10, Lost: 3, Healed: true,
			Recovery: int64(1500 * time.Millisecond)}),
	)
	if err := table.AddRuns("theirs", reports); err != nil {
		t.Fatal(err)
	}
	md := table.Markdown(out)
	for _, want := range []string{
		"| a<b>\\|c | [failed](theirs/runs/1/summary.md)<br>lost 3 of 10, recovered after 1.50 s |",
		"| scenario | theirs<br>flanneld v9 |", "| not run | not run |", "| **failed** | 1 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("want %q in\n%s", want, md)
		}
	}
	page, err := table.HTML(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`href="theirs/runs/1/summary.md"`, "a&lt;b&gt;|c", "recovered after 1.50 s"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("want %q in\n%s", want, page)
		}
	}
	dec := xml.NewDecoder(strings.NewReader(string(page)))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the page's elements do not nest: %v", err)
		}
	}
}

func TestVersionsInOrder(t *testing.T) {
	all, err := matrix.Order([]string{
		"/x/flanneld-v0.28.9",
		"/x/flanneld-v0.9.1",
		"/x/flanneld-v0.10.0-rc1",
		"/x/flanneld-v0.10.0",
		"/x/flanneld-0.9",
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range all {
		names = append(names, b.Name())
	}
	want := []string{
		"flanneld-0.9",
		"flanneld-v0.9.1",
		"flanneld-v0.10.0-rc1",
		"flanneld-v0.10.0",
		"flanneld-v0.28.9",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	for _, name := range []string{"0.9.1", "v0.9.1", "flanneld-v0.9.1", "/x/flanneld-v0.9.1"} {
		if i, err := matrix.Find(all, name); i != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, i, err)
		}
	}
	if _, err := matrix.Find(all, "7.7"); err == nil || !strings.Contains(err.Error(), "flanneld-v0.10.0-rc1") {
		t.Errorf("what there is is not told: %v", err)
	}
	if _, err := matrix.Order(
		[]string{"/x/flanneld"},
	); err == nil ||
		!strings.Contains(err.Error(), "no version") {
		t.Errorf("%v", err)
	}
}

func TestBisectAsksLittle(t *testing.T) {
	const n = 40
	var all []matrix.Binary
	for i := range n {
		all = append(all, matrix.Binary{Path: fmt.Sprintf("/x/agent-v0.%d", i)})
	}
	for change := 1; change < n; change++ {
		for _, fixed := range []bool{true, false} { // whether the change made it good or bad
			asked := 0
			ask := func(_ context.Context, b matrix.Binary) (matrix.Answer, error) {
				asked++
				if (slices.Index(all, b) >= change) == fixed {
					return matrix.Good, nil
				}
				return matrix.Bad, nil
			}
			good, bad := 0, n-1
			if fixed {
				good, bad = n-1, 0
			}
			got, err := matrix.Bisect(t.Context(), all, good, bad, ask)
			if err != nil || len(got) != 1 || got[0] != all[change] {
				t.Fatalf("change at %d: %v, %v", change, got, err)
			}
			if asked > bits.Len(n-1) {
				t.Errorf("change at %d: %d runs", change, asked)
			}
		}
	}
}

func TestBisectPassesOverWhatGivesNoVerdict(t *testing.T) {
	var all []matrix.Binary
	for i := range 8 {
		all = append(all, matrix.Binary{Path: fmt.Sprintf("/x/agent-v0.%d", i)})
	}
	answers := []matrix.Answer{
		matrix.Bad, matrix.Bad, matrix.Bad, matrix.Unknown, matrix.Unknown, matrix.Good, matrix.Good, matrix.Good,
	}
	got, err := matrix.Bisect(
		t.Context(),
		all,
		7,
		0,
		func(_ context.Context, b matrix.Binary) (matrix.Answer, error) {
			return answers[slices.Index(all, b)], nil
		},
	)
	if err != nil || !slices.Equal(got, all[3:6]) {
		t.Errorf("%v, %v: all that may have changed it", got, err)
	}
	if _, err := matrix.Bisect(t.Context(), all, 3, 3, nil); err == nil {
		t.Error("one that is both good and bad is taken")
	}
	broken := fmt.Errorf("disk full")
	_, err = matrix.Bisect(t.Context(), all, 7, 0, func(context.Context, matrix.Binary) (matrix.Answer, error) {
		return matrix.Unknown, broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
