package record_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
)

// Ten minutes of 12 pairs at 100 echoes a second, in the worst case for the series: each tenth of a second
// differs enough to keep its own bucket.
func TestTenMinutesOfAMeshAreSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	w, err := record.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c := w.For("ten minutes of everything that can go wrong with etcd and an agent").InCluster("1234567890")
	const every, tenths = 20, 6000 // the series go out every 2 s
	for begin := 0; begin < tenths; begin += every {
		var lines []record.Series
		for pair := range 12 {
			s := record.Series{
				From:  fmt.Sprintf("node%02d-pod1", pair/3+1),
				To:    fmt.Sprintf("node%02d-pod1", pair%4+1),
				Start: int64(4e15) + int64(begin)*1e8,
			}
			for i := range every {
				s.Buckets = append(
					s.Buckets,
					record.Bucket{int64(i) * 100, 100, 10, int64(i % 3), 123456, 234567, 999999},
				)
			}
			lines = append(lines, s)
		}
		c.Write(record.Event{Kind: record.KindSeries, Series: lines})
	}
	// Every echo in ten lost: as many outages as there can be, each of them exact.
	p := &record.Probe{}
	for range 12 {
		pair := record.Pair{From: "node01-pod1", To: "node02-pod1", Sent: 60000, Lost: 6000}
		for i := range 6000 {
			pair.Outages = append(
				pair.Outages,
				record.Outage{Start: 4e15 + int64(i)*1e8, Length: 1e7, Lost: 1, Ended: true},
			)
		}
		p.Pairs = append(p.Pairs, pair)
	}
	c.Write(record.Event{Kind: record.KindProbe, Probe: p})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 20<<20 {
		t.Errorf("%d bytes", info.Size())
	}
	t.Logf("%d bytes", info.Size())
}

func write(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const begins = `{"at":1,"kind":"run","run":{"version":2}}`

func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string // in the error
	}{
		"whole": {[]string{begins, `{"at":2,"kind":"step","scenario":"a","step":"x"}`}, ""},
		"no beginning": {
			[]string{`{"at":2,"kind":"step","scenario":"a","step":"x"}`},
			"does not begin with what was run",
		},
		"another version": {
			[]string{`{"at":1,"kind":"run","run":{"version":1}}`},
			"schema version 1 and this program reads version 2",
		},
		"something else": {[]string{"hello"}, "line 1 is not an event"},
		"nothing":        {nil, "line 1 is not an event"},
	} {
		_, err := record.Load(write(t, c.lines...))
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := record.Load("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Events that lack what their kind promises, as from a writer with a defect, must not stop a reader.
func TestLoadSurvivesHollowAndDamagedLines(t *testing.T) {
	lines := []string{begins, "\x00\x00{half"}
	for _, kind := range []record.Kind{
		record.KindWorld, record.KindPod, record.KindStep, record.KindFault,
		record.KindProcess,
		record.KindLease, record.KindLog, record.KindSeries, record.KindProbe, record.KindReach, record.KindState,
		record.KindTrace, record.KindInvariant, record.KindFigure, record.KindVerdict, record.KindEnd,
	} {
		lines = append(lines, fmt.Sprintf(`{"at":2,"kind":%q,"scenario":"a","cluster":"c"}`, kind))
	}
	o, err := record.Load(write(t, lines...))
	if err != nil || len(o.Damaged) != 1 || o.Damaged[0] != 2 || len(o.Scenarios) != 1 || len(o.Clusters) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestScenariosOfOneCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	w, err := record.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(record.Event{Kind: record.KindRun, Run: &record.Run{Version: record.Version}})
	c := w.For("first").InCluster("c")
	c.Write(record.Event{Kind: record.KindStep, Step: "one"})
	w.For("first").
		Write(record.Event{Kind: record.KindVerdict, Verdict: &record.Verdict{
			State:    record.Passed,
			Clusters: []string{"c"},
		}})
	c.SetScenario("second")
	c.Write(record.Event{Kind: record.KindStep, Step: "two"})
	w.For("second").
		Write(record.Event{Kind: record.KindVerdict, Verdict: &record.Verdict{
			State:    record.Passed,
			Clusters: []string{"c"},
		}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	o, err := record.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Clusters) != 1 || len(o.Clusters[0].Steps) != 2 || o.Clusters[0].Steps[1].Scenario != "second" {
		t.Fatalf("%+v", o.Clusters)
	}
	for i, want := range []string{"one", "two"} {
		if s := o.Scenarios[i]; len(s.Steps) != 1 || s.Steps[0] != want || s.Clusters[0] != o.Clusters[0] {
			t.Errorf("%+v", s)
		}
	}
}
