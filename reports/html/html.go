// Package html renders a record as the report that a person opens: one self-contained file, which asks the
// network for nothing. The table of scenarios and the sentence of each failure are plain HTML; all else is
// JSON that the page's scripts draw when a scenario is opened.
package html

import (
	"bufio"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

//go:embed assets
var assets embed.FS

// page is what the template gets.
type page struct {
	Title, Summary string
	Run            *record.Run
	When, Agents   string
	Command        string
	// Cut says, in a sentence, that the record ends before its run; Contradictions where it is not consistent.
	Cut            string
	Contradictions []string
	Rows           []row
	Counts         []count
	Style, Script  []string
	ChartLicence   string
}

// Styles and Scripts are what the template puts in unescaped: they are the program's own.
func (p page) Styles() template.CSS { return template.CSS(strings.Join(p.Style, "\n")) }

// Scripts are the page's programs.
func (p page) Scripts() template.JS { return template.JS(strings.Join(p.Script, "\n")) }

type count struct {
	State, Name string
	N           int
}

// row is a scenario in the table.
type row struct {
	ID                               int
	Name, State, Class, Search       string
	Sentence, Felt                   string
	Lost, Outage, Recovery, Duration string
	// The numbers to sort by.
	LostN              uint64
	OutageN, RecoveryN int64
	DurationN          int64
	Rerun, Location    string
	Flagged            bool
}

// Render writes the report of a run.
func Render(w io.Writer, o *record.Outcome) error {
	b := newBuilder(o)
	p := describe(o)
	t, err := template.New("page.tmpl").ParseFS(assets, "assets/page.tmpl")
	if err != nil {
		return fmt.Errorf("render HTML: %w", err)
	}
	if err := p.addAssets("style.css", "app"); err != nil {
		return fmt.Errorf("render HTML: %w", err)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if err := t.Execute(out, p); err != nil {
		return fmt.Errorf("render HTML: %w", err)
	}
	for i, s := range o.Scenarios {
		if err := embedJSON(out, fmt.Sprintf("s%d", i), b.scenario(s)); err != nil {
			return err
		}
	}
	for i, c := range o.Clusters {
		if err := embedJSON(out, fmt.Sprintf("c%d", i), b.cluster(c)); err != nil {
			return err
		}
	}
	// The scripts come last: they start when the data is there.
	fmt.Fprintf(out, "<script>%s</script>\n</body>\n</html>\n", p.Scripts())
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write HTML: %w", err)
	}
	return nil
}

// addAssets takes in the style sheet, the charting library and the scripts of one page.
func (p *page) addAssets(style, scripts string) error {
	read := func(into *[]string, names ...string) error {
		for _, name := range names {
			raw, err := assets.ReadFile("assets/" + name)
			if err != nil {
				return err
			}
			*into = append(*into, string(raw))
		}
		return nil
	}
	if err := read(&p.Style, "uplot/uPlot.min.css", style); err != nil {
		return err
	}
	var library []string
	if err := read(&library, "uplot/LICENSE"); err != nil {
		return err
	}
	p.ChartLicence = library[0]
	// The licence asks to stay with every copy.
	p.Script = append(p.Script, "/*!\nuPlot\n"+library[0]+"*/")
	if err := read(&p.Script, "uplot/uPlot.iife.min.js"); err != nil {
		return err
	}
	files, err := fs.Glob(assets, "assets/"+scripts+"/*.js")
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := read(&p.Script, strings.TrimPrefix(f, "assets/")); err != nil {
			return err
		}
	}
	return nil
}

// embedJSON writes a value as a script element that no browser runs. encoding/json escapes <, > and &, so no
// text in it can end the element.
func embedJSON(w io.Writer, id string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("render HTML: %w", err)
	}
	if _, err := fmt.Fprintf(
		w,
		"<script type=\"application/json\" id=\"%s\">%s</script>\n",
		id,
		raw,
	); err != nil {
		return fmt.Errorf("write HTML: %w", err)
	}
	return nil
}

func stateOf(s *record.Scenario) string {
	if s.Verdict == nil {
		return "not finished"
	}
	return s.Verdict.State
}

func class(state string) string { return strings.ReplaceAll(state, " ", "-") }

func describe(o *record.Outcome) page {
	p := page{
		Title:          "nemesh",
		Run:            o.Run,
		Contradictions: o.Recheck(),
		Cut:            text.Ends(o),
		Agents:         text.Agents(o),
	}
	p.Summary = strings.TrimSpace(text.Style{}.Summary(o))
	if o.Run != nil {
		p.When = o.Run.Started.Format("2 January 2006, 15:04:05 MST")
		p.Command = strings.Join(o.Run.Command, " ")
	}
	for _, state := range []string{
		record.Failed, record.Unproven, "not finished", record.Passed,
		record.Skipped,
	} {
		n := 0
		for _, s := range o.Scenarios {
			if stateOf(s) == state {
				n++
			}
		}
		if n > 0 {
			p.Counts = append(p.Counts, count{State: class(state), Name: state, N: n})
		}
	}
	for i, s := range o.Scenarios {
		p.Rows = append(p.Rows, describeRow(i, s))
	}
	return p
}

func describeRow(i int, s *record.Scenario) row {
	r := row{
		ID: i, Name: s.Name, State: stateOf(s), Class: class(stateOf(s)), Sentence: s.Sentence(),
		Rerun: text.Rerun(s), Flagged: len(s.Recheck()) > 0,
	}
	search := []string{s.Name, r.State, r.Sentence}
	if v := s.Verdict; v != nil {
		r.Location, r.Felt = v.Location, strings.Join(v.Broke, ", ")
		r.LostN, r.OutageN, r.RecoveryN, r.DurationN = v.Lost, v.LongestOutage, v.Recovery, v.Duration
		if v.Sent > 0 {
			r.Lost = fmt.Sprintf("%s / %s", text.Thousands(v.Lost), text.Thousands(v.Sent))
		}
		if v.Lost > 0 {
			r.Outage = text.Short(time.Duration(v.LongestOutage))
		}
		r.Recovery = text.Recovered(v)
		r.Duration = fmt.Sprintf("%.1f s", time.Duration(v.Duration).Seconds())
		search = append(append(search, v.Broke...), v.Labels...)
		for _, i := range v.Injected() {
			search = append(search, i.ID, i.Component)
		}
	}
	r.Search = strings.ToLower(strings.Join(search, " "))
	return r
}
