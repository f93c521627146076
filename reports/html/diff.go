package html

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/nemesh/nemesh/reports/diff"
	"github.com/nemesh/nemesh/reports/record"
)

// diffPage is what the template of a comparison gets.
type diffPage struct {
	Summary string
	A, B    diffRun
	Rows    []diffRow
	Style   string
}

// Styles are the page's own.
func (p diffPage) Styles() template.CSS { return template.CSS(p.Style) }

type diffRun struct{ When, Command, Module, Cut string }

type diffRow struct {
	Name, Way, Class string
	Why              []string
	A, B             diffCell
}

type diffCell struct {
	State, Class, Lost, Outage, Recovery string
	There                                bool
}

// RenderDiff writes a comparison of two runs as one self-contained page without scripts.
func RenderDiff(w io.Writer, c diff.Comparison) error {
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return fmt.Errorf("render HTML: %w", err)
	}
	p := diffPage{Summary: c.Summary(), A: aboutRun(c.A), B: aboutRun(c.B), Style: string(style)}
	for _, way := range []string{diff.Worse, diff.Changed, diff.Better, diff.New, diff.Gone, ""} {
		for _, r := range c.Rows {
			if r.Way == way {
				p.Rows = append(p.Rows, diffRow{Name: r.Name, Way: wayName(way), Class: wayClass[way], Why: r.Why,
					A: cellOf(r.A), B: cellOf(r.B)})
			}
		}
	}
	t, err := template.New("diff.tmpl").ParseFS(assets, "assets/diff.tmpl")
	if err == nil {
		err = t.Execute(w, p)
	}
	if err != nil {
		return fmt.Errorf("render HTML: %w", err)
	}
	return nil
}

// wayClass gives each way the colour of a verdict.
var wayClass = map[string]string{diff.Worse: "failed", diff.Better: "passed", diff.Changed: "not-proven",
	diff.New: "skipped", diff.Gone: "skipped", "": "skipped"}

func wayName(way string) string {
	if way == "" {
		return "as before"
	}
	return way
}

func aboutRun(o *record.Outcome) diffRun {
	r := diffRun{}
	if o.Run != nil {
		r = diffRun{When: o.Run.Started.Format("2 January 2006, 15:04:05 MST"),
			Command: strings.Join(o.Run.Command, " "), Module: o.Run.Module}
	}
	if !o.Ended() {
		r.Cut = "not complete"
	}
	return r
}

func cellOf(s *record.Scenario) diffCell {
	c := diffCell{There: s != nil, State: diff.State(s), Class: class(diff.State(s))}
	c.Lost, c.Outage, c.Recovery = diff.Figures(s)
	return c
}
