package compare_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/reports/record"
)

func TestTableGoesOnWhereItStopped(t *testing.T) {
	reports := t.TempDir()
	table := compare.NewTable([]string{"a", "b", "c"}, []string{"none", "theirs"})
	const none, theirs = 0, 1
	write(t, reports, "1", true, about(),
		verdict("a", record.Verdict{State: record.Failed, Sent: 10, Lost: 3}),
		verdict("b", record.Verdict{State: record.Unproven, Interrupted: true}))
	if err := os.MkdirAll(filepath.Join(reports, "runs", "2"), 0o755); err != nil {
		t.Fatal(err) // a run that was ended before its record began
	}
	write(t, reports, "3", false) // and one whose record has no line
	if err := table.AddRuns(theirs, reports); err != nil {
		t.Fatal(err)
	}
	if missing := table.Missing(theirs); !slices.Equal(missing, []string{"b", "c"}) {
		t.Errorf("missing %q: what was interrupted has no verdict", missing)
	}
	write(t, reports, "4", false, about(), verdict("a", record.Verdict{State: record.Passed, Sent: 9}),
		verdict("b", record.Verdict{State: record.Skipped, Message: "it lacks | \"leave\""}),
		verdict("stranger", record.Verdict{State: record.Failed}))
	if err := table.AddRuns(theirs, reports); err != nil {
		t.Fatal(err)
	}
	if got := table.Columns[theirs].Result("a"); got.State != record.Passed || got.Felt() != "lost 0 of 9" {
		t.Errorf("the later run wins: %+v", got)
	}
	if err := table.AddRuns(none, filepath.Join(reports, "nowhere")); err != nil {
		t.Errorf("no runs yet: %v", err)
	}
	for state, want := range map[string]int{record.Passed: 1, record.Failed: 0, record.Skipped: 1} {
		if n := table.Columns[theirs].Count(state); n != want {
			t.Errorf("%d %s, want %d", n, state, want)
		}
	}
}

func TestTableIsRendered(t *testing.T) {
	out := t.TempDir()
	reports := filepath.Join(out, "theirs")
	table := compare.NewTable([]string{"a<b>|c", "old", "not run"}, []string{"theirs"})
	write(t, reports, "1", false, about(),
		verdict("a<b>|c", record.Verdict{
			State: record.Failed, Sent: 10, Lost: 3, Healed: true,
			Recovery: int64(1500 * time.Millisecond),
		}),
		verdict("old", record.Verdict{State: record.Skipped, Message: "it lacks | \"leave\""}))
	if err := table.AddRuns(0, reports); err != nil {
		t.Fatal(err)
	}
	if err := table.Write(out); err != nil {
		t.Fatal(err)
	}
	for file, wanted := range map[string][]string{
		"matrix.md": {
			"| a<b>\\|c | [failed](theirs/runs/1/summary.md)<br>lost 3 of 10, recovered after 1.50 s |",
			"| old | [skipped](theirs/runs/1/summary.md)<br>it lacks \\| \"leave\" |",
			"| scenario | theirs<br>flanneld v9 |\n|---|---|\n", "| not run | not run |", "| **failed** | 1 |",
		},
		"matrix.html": {
			`<a class="failed" href="theirs/runs/1/summary.md">failed</a>`, "a&lt;b&gt;|c",
			"recovered after 1.50 s", "it lacks | &#34;leave&#34;", "<tr><td>failed</td><td>1</td></tr>",
		},
	} {
		raw, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wanted {
			if !strings.Contains(string(raw), want) {
				t.Errorf("want %q in %s:\n%s", want, file, raw)
			}
		}
		if file == "matrix.html" {
			nests(t, raw)
		}
	}
}

// nests checks that every element of a page ends where it should.
func nests(t *testing.T, page []byte) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(page))
	dec.Strict = false
	var open []string
	for {
		token, err := dec.RawToken()
		switch e := token.(type) {
		case xml.StartElement:
			if !slices.Contains(xml.HTMLAutoClose, e.Name.Local) {
				open = append(open, e.Name.Local)
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != e.Name.Local {
				t.Fatalf("%s ends within %q:\n%s", e.Name.Local, open, page)
			}
			open = open[:len(open)-1]
		}
		if errors.Is(err, io.EOF) && len(open) == 0 {
			return
		}
		if err != nil {
			t.Fatalf("%v, within %q:\n%s", err, open, page)
		}
	}
}
