package html_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/html"
	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

func render(tb testing.TB, o *record.Outcome) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := html.Render(&b, o); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestSixtyScenariosAreSmall(t *testing.T) {
	page := render(t, load(t, synthetic(t, 60, 10, 200)))
	if n := len(page); n > 10<<20 {
		t.Errorf("%d bytes", n)
	}
}

func TestLongRunIsSmall(t *testing.T) {
	if n := len(render(t, load(t, synthetic(t, 4, 600, 20_000)))); n > 10<<20 {
		t.Errorf("%d bytes", n)
	}
}

func TestPageAsksTheNetworkForNothing(t *testing.T) {
	page := string(render(t, load(t, synthetic(t, 10, 2, 20))))
	for _, reference := range []string{
		`src="http`, `href="http`, "url(http", "@import", "fetch(",
		"XMLHttpRequest",
	} {
		if strings.Contains(page, reference) {
			t.Errorf("the page contains %s", reference)
		}
	}
	if !strings.Contains(page, "default-src 'none'") {
		t.Error("the page does not forbid the network")
	}
	if !strings.Contains(page, "Copyright (c) 2022 Leon Sorokin") {
		t.Error("the licence of uPlot is not in the page")
	}
}

func TestTextIsNeverMarkup(t *testing.T) {
	o := load(t, synthetic(t, 1, 1, 3))
	o.Scenarios[0].Name = `<img src=x onerror=alert(1)></script>`
	page := string(render(t, o))
	if strings.Contains(page, "<img src=x") || strings.Contains(page, "reconciled </script>") {
		t.Error("a text of the record is markup")
	}
}

func TestCutRecordSaysWhereItEnds(t *testing.T) {
	whole, err := os.ReadFile(synthetic(t, 3, 2, 10))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "record.jsonl")
	for _, keep := range []int{len(whole) - 100, len(whole) * 2 / 3, len(whole) / 2, 700} {
		if err := os.WriteFile(path, whole[:keep], 0o644); err != nil {
			t.Fatal(err)
		}
		o := load(t, path)
		page := string(render(t, o))
		if !strings.Contains(page, "Not complete.") || !strings.Contains(text.Ends(o), "The record ends") {
			t.Errorf("%d bytes: the page does not say that it is not complete", keep)
		}
	}
}

func TestContradictionIsShown(t *testing.T) {
	o := load(t, synthetic(t, 5, 2, 10))
	if wrong := text.Contradictions(o); len(wrong) > 0 {
		t.Fatalf("a sound record is contradicted: %q", wrong)
	}
	for _, s := range o.Scenarios {
		if s.Verdict.State == record.Failed {
			s.Verdict.State = record.Passed
		}
	}
	if page := string(render(t, o)); strings.Count(page, "Its own data contradicts this verdict.") != 1 {
		t.Error("a verdict that its data contradicts is not flagged once")
	}
}

// BenchmarkRender20MB reads and renders a record of 20 MB.
func BenchmarkRender20MB(b *testing.B) {
	path := synthetic(b, 60, 60, 350)
	b.SetBytes(size(b, path))
	for b.Loop() {
		render(b, load(b, path))
	}
}
