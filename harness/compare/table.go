package compare

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/reports/html"
	"github.com/nemesh/nemesh/reports/record"
)

// Table is scenario × agent: runs of the same scenarios side by side.
type Table struct {
	Scenarios []string
	Columns   []Column
}

// Column is one agent in one world.
type Column struct {
	// Name is what the user calls it, such as "flannel-0.28" or "flannel-0.28 host-gw".
	Name string
	// Run has the last verdict of each scenario of the table, of however many runs.
	Run
}

// NewTable makes a table without verdicts.
func NewTable(scenarios, columns []string) *Table {
	t := &Table{Scenarios: scenarios}
	for _, c := range columns {
		t.Columns = append(t.Columns, Column{Name: c})
	}
	return t
}

// AddRuns adds every run in a reports folder to a column. The runs' names put them in the order of time, and
// a later verdict replaces an earlier one. A scenario that was interrupted has no verdict. A folder that is
// not there has no runs.
func (t *Table) AddRuns(column int, reports string) error {
	c := &t.Columns[column]
	dirs, err := filepath.Glob(filepath.Join(reports, "runs", "*"))
	if err != nil {
		return fmt.Errorf("list the runs of %s: %w", c.Name, err)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		run, err := Read(dir)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, record.ErrEmpty) {
			continue // it was ended before it began
		}
		if err != nil {
			return fmt.Errorf("read a run of %s: %w", c.Name, err)
		}
		if run.Agent() != "" {
			c.About = run.About
		}
		for _, r := range run.Results {
			if r.State == Unfinished || r.Interrupted || !slices.Contains(t.Scenarios, r.Scenario) {
				continue
			}
			if i := c.index(r.Scenario); i >= 0 {
				c.Results[i] = r
			} else {
				c.Results = append(c.Results, r)
			}
		}
	}
	return nil
}

// Missing lists the scenarios that have no verdict in a column.
func (t *Table) Missing(column int) []string {
	return slices.DeleteFunc(slices.Clone(t.Scenarios),
		func(s string) bool { return t.Columns[column].index(s) >= 0 })
}

// Write renders the table into matrix.md and matrix.html in a folder, which it makes if needed.
func (t *Table) Write(dir string) error {
	page, err := t.HTML(dir)
	if err == nil {
		err = errors.Join(
			os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "matrix.md"), []byte(t.Markdown(dir)), 0o644),
			os.WriteFile(filepath.Join(dir, "matrix.html"), page, 0o644),
		)
	}
	if err != nil {
		return fmt.Errorf("write the matrix: %w", err)
	}
	return nil
}

// states are in the order in which a column counts them.
var states = []string{record.Passed, record.Failed, record.Unproven, record.Skipped}

// Markdown renders the table; links are relative to folder, in which it will be kept.
func (t *Table) Markdown(folder string) string {
	head := []string{"scenario"}
	for _, c := range t.Columns {
		name := cell(c.Name)
		if agent := c.Agent(); agent != "" && agent != c.Name {
			name += "<br>" + cell(agent)
		}
		head = append(head, name)
	}
	var rows [][]string
	for _, s := range t.Scenarios {
		row := []string{cell(s)}
		for _, c := range t.Columns {
			row = append(row, c.Result(s).markdown(folder))
		}
		rows = append(rows, row)
	}
	for _, state := range states {
		row := []string{"**" + state + "**"}
		for _, c := range t.Columns {
			row = append(row, fmt.Sprint(c.Count(state)))
		}
		rows = append(rows, row)
	}
	return "# scenario × agent\n\n" + markdown(head, rows)
}

// markdown renders a table whose cells are Markdown.
func markdown(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// cell keeps a text from ending its table cell.
func cell(text string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text) }

func (r Result) markdown(folder string) string {
	if r.State == "" {
		return "not run"
	}
	out := fmt.Sprintf("[%s](%s)", r.State, r.Link(folder))
	for _, more := range []string{r.Felt(), r.Skipped()} {
		if more != "" {
			out += "<br>" + cell(more)
		}
	}
	return out
}

// Skipped says why a scenario was skipped.
func (r Result) Skipped() string {
	if r.State != record.Skipped {
		return ""
	}
	return r.Message
}

// Link is the summary of its run as seen from a folder.
func (r Result) Link(folder string) string {
	target := filepath.Join(r.Dir, "summary.md")
	if rel, err := filepath.Rel(folder, target); err == nil {
		return filepath.ToSlash(rel)
	}
	return target
}

//go:embed table.tmpl
var tablePage string

// HTML renders the table as one page; links are relative to folder, in which it will be kept.
func (t *Table) HTML(folder string) ([]byte, error) {
	return html.Page{Name: "nemesh matrix", About: "scenario × agent", Body: tablePage, Data: struct {
		*Table
		Folder string
		States []string
	}{t, folder, states}}.Render()
}
