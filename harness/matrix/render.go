package matrix

import (
	"bytes"
	"fmt"
	"html/template"
	"path/filepath"
	"strings"

	"github.com/nemesh/nemesh/reports/record"
)

// states are in the order in which a column counts them.
var states = []string{record.Passed, record.Failed, record.Unproven, record.Skipped}

// Markdown renders the table; links are relative to folder, in which it will be kept.
func (t *Table) Markdown(folder string) string {
	var b strings.Builder
	b.WriteString("# scenario × agent\n\n| scenario |")
	for _, c := range t.Columns {
		b.WriteString(" " + cell(c.Name))
		if c.Agent != "" && c.Agent != c.Name {
			b.WriteString("<br>" + cell(c.Agent))
		}
		b.WriteString(" |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(t.Columns)) + "\n")
	for _, s := range t.Scenarios {
		b.WriteString("| " + cell(s) + " |")
		for _, c := range t.Columns {
			b.WriteString(" " + t.Cell(s, c.Name).markdown(folder) + " |")
		}
		b.WriteString("\n")
	}
	for _, state := range states {
		b.WriteString("| **" + state + "** |")
		for _, c := range t.Columns {
			fmt.Fprintf(&b, " %d |", t.Count(c.Name, state))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (c Cell) markdown(folder string) string {
	if c.State == "" {
		return "not run"
	}
	out := fmt.Sprintf("[%s](%s)", c.State, c.link(folder))
	if felt := c.Felt(); felt != "" {
		out += "<br>" + cell(felt)
	}
	if c.State == record.Skipped {
		out += "<br>" + cell(c.Message)
	}
	return out
}

// link is the run's summary as seen from a folder.
func (c Cell) link(folder string) string {
	target := filepath.Join(c.Run, "summary.md")
	if rel, err := filepath.Rel(folder, target); err == nil {
		return filepath.ToSlash(rel)
	}
	return target
}

// cell keeps a text from ending its table cell.
func cell(text string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text) }

// page is one file without scripts or anything from elsewhere, readable in both colour schemes.
var page = template.Must(template.New("matrix").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>scenario × agent</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem; }
table { border-collapse: collapse; }
th, td { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding: .35rem .6rem;
  text-align: left; vertical-align: top; }
thead th { position: sticky; top: 0; background: Canvas; }
small { display: block; opacity: .75; }
td.passed a { color: #1a7f37; } td.failed a { color: #cf222e; font-weight: 600; }
td.other a { color: #9a6700; }
@media (prefers-color-scheme: dark) {
  td.passed a { color: #57ab5a; } td.failed a { color: #f47067; } td.other a { color: #daaa3f; }
}
</style>
</head>
<body>
<h1>scenario × agent</h1>
<table>
<thead><tr><th scope="col">scenario</th>{{range .Columns -}}
<th scope="col">{{.Name}}<small>{{.Agent}}</small></th>
{{- end}}</tr></thead>
<tbody>
{{range .Rows}}<tr><th scope="row">{{.Scenario}}</th>{{range .Cells}}<td class="{{.Class}}">
{{- if .State}}<a href="{{.Link}}">{{.State}}</a><small>{{.Felt}}</small>
{{- else}}not run{{end}}</td>{{end}}</tr>
{{end}}</tbody>
<tfoot>
{{range .Totals}}<tr><th scope="row">{{.State}}</th>{{range .Counts}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tfoot>
</table>
</body>
</html>
`))

type (
	pageCell struct{ State, Class, Link, Felt string }
	pageRow  struct {
		Scenario string
		Cells    []pageCell
	}
	pageTotal struct {
		State  string
		Counts []int
	}
)

// HTML renders the table as one page; links are relative to folder, in which it will be kept.
func (t *Table) HTML(folder string) ([]byte, error) {
	var rows []pageRow
	for _, s := range t.Scenarios {
		row := pageRow{Scenario: s}
		for _, c := range t.Columns {
			row.Cells = append(row.Cells, t.Cell(s, c.Name).page(folder))
		}
		rows = append(rows, row)
	}
	var totals []pageTotal
	for _, state := range states {
		total := pageTotal{State: state}
		for _, c := range t.Columns {
			total.Counts = append(total.Counts, t.Count(c.Name, state))
		}
		totals = append(totals, total)
	}
	var out bytes.Buffer
	err := page.Execute(&out, map[string]any{"Columns": t.Columns, "Rows": rows, "Totals": totals})
	if err != nil {
		return nil, fmt.Errorf("render the matrix: %w", err)
	}
	return out.Bytes(), nil
}

func (c Cell) page(folder string) pageCell {
	p := pageCell{State: c.State, Class: c.State, Link: c.link(folder), Felt: c.Felt()}
	if c.State != record.Passed && c.State != record.Failed {
		p.Class = "other"
	}
	if c.State == record.Skipped {
		p.Felt = c.Message
	}
	return p
}
