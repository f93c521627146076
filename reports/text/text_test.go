package text_test

import (
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/junit"
	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

var update = flag.Bool("update", false, "write the golden files")

// outcome reads the record from which the golden files are rendered. It is one of before faults had ids.
func outcome(t *testing.T) *record.Outcome { return recorded(t, "three.jsonl") }

func recorded(t *testing.T, name string) *record.Outcome {
	t.Helper()
	events, err := record.ReadFile("../../fixtures/records/" + name)
	if err != nil {
		t.Fatal(err)
	}
	o := &record.Outcome{}
	for _, e := range events {
		o.Add(e)
	}
	return o
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not as expected (go test -update writes it):\n%s", name, got)
	}
}

func TestConsole(t *testing.T) {
	o := outcome(t)
	var b strings.Builder
	style := text.Style{}
	for _, s := range o.Scenarios {
		b.WriteString(style.Line(s) + "\n")
		if s.Verdict.State != record.Passed {
			b.WriteString(style.Failure(s) + "\n")
		}
	}
	b.WriteString(style.Summary(o))
	golden(t, "console.txt", b.String())
}

func TestMarkdown(t *testing.T) { golden(t, "summary.md", text.Markdown(outcome(t))) }

func TestJUnit(t *testing.T) {
	raw, err := junit.Render(outcome(t))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", string(raw))
	var back struct {
		Suites []struct {
			Failures int `xml:"failures,attr"`
			Errors   int `xml:"errors,attr"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(
		raw,
		&back,
	); err != nil || back.Suites[0].Failures != 1 ||
		back.Suites[0].Errors != 1 {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestExitCodes(t *testing.T) {
	verdict := func(states ...string) *record.Outcome {
		o := &record.Outcome{}
		for _, s := range states {
			o.Add(record.Event{Kind: record.KindVerdict, Scenario: s, Verdict: &record.Verdict{State: s}})
		}
		return o
	}
	for _, c := range []struct {
		states []string
		want   int
	}{
		{[]string{record.Passed}, 0},
		{[]string{record.Passed, record.Skipped}, 0},
		{[]string{record.Passed, record.Unproven}, 2},
		{[]string{record.Passed, record.Unproven, record.Failed}, 1},
		{[]string{record.Skipped}, 2},
		{nil, 2},
	} {
		if got := verdict(c.states...).Exit(); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.states, got, c.want)
		}
	}
	o := verdict(record.Passed)
	o.Add(record.Event{Kind: record.KindStep, Scenario: "never ended", Step: "x"})
	if o.Exit() != 2 {
		t.Error("a scenario that did not end counts for nothing")
	}
}

// The command that runs a scenario again has all that made it end as it did.
func TestRerun(t *testing.T) {
	for want, s := range map[string]record.Scenario{
		`make chaos FOCUS='a \(b\). c'`:                    {Name: "a (b): c"},
		"nemesh run --suite ./mine 'a'":                    {Name: "a", Suite: "./mine"},
		"NEMESH_DEFECT=deaf make chaos FOCUS='a'":          {Name: "a", Defect: "deaf"},
		"NEMESH_DEFECT=deaf nemesh run --suite ./mine 'a'": {Name: "a", Suite: "./mine", Defect: "deaf"},
	} {
		if got := text.Rerun(&s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
