// Package matrix puts runs of the same scenarios against several agents side by side, and finds the first of
// many versions at which a scenario changes. It reads records; it runs nothing.
package matrix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// Column is one agent in one world: a column of the table.
type Column struct {
	// Name is what the user calls it, such as "flannel-0.28" or "flannel-0.28 host-gw".
	Name string
	// Agent is what the binary says of itself, once it ran.
	Agent string
}

// Cell is how one scenario ended in one column.
type Cell struct {
	// State is a verdict's; empty where the scenario has not been run.
	State string
	Sent  uint64
	Lost  uint64
	// Recovery is a verdict's: -1 where something still did not answer. It is told only when Healed.
	Recovery time.Duration
	Healed   bool
	Message  string
	// Run is the folder of the run, absolute.
	Run string
}

// Table is scenario × column.
type Table struct {
	Scenarios []string
	Columns   []Column
	cells     map[[2]string]Cell
}

// New makes a table without verdicts. Only scenarios that are named here get rows.
func New(scenarios []string, columns ...string) *Table {
	t := &Table{Scenarios: scenarios, cells: map[[2]string]Cell{}}
	for _, c := range columns {
		t.Columns = append(t.Columns, Column{Name: c})
	}
	return t
}

// Cell returns how a scenario ended in a column; the zero value where it has not.
func (t *Table) Cell(scenario, column string) Cell { return t.cells[[2]string{scenario, column}] }

// Add takes over the verdicts of a run. A later run wins over an earlier one.
func (t *Table) Add(column, dir string, o *record.Outcome) {
	for i := range t.Columns {
		if t.Columns[i].Name == column && o.Run != nil {
			t.Columns[i].Agent = strings.TrimSpace(o.Run.Agent + " " + o.Run.AgentVersion)
		}
	}
	for _, s := range o.Scenarios {
		if s.Verdict == nil || s.Verdict.Interrupted {
			continue
		}
		v := s.Verdict
		t.cells[[2]string{s.Name, column}] = Cell{
			State: v.State, Sent: v.Sent, Lost: v.Lost, Recovery: time.Duration(v.Recovery), Healed: v.Healed,
			Message: v.Message, Run: dir,
		}
	}
}

// AddRuns takes over every run in a reports folder, in the order of time, which their names are in. A folder
// that is not there has no runs.
func (t *Table) AddRuns(column, reports string) error {
	dirs, err := filepath.Glob(filepath.Join(reports, "runs", "*"))
	if err != nil {
		return fmt.Errorf("list the runs of %s: %w", column, err)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		o, err := ReadRun(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was ended before it began
		}
		if err != nil {
			return fmt.Errorf("read a run of %s: %w", column, err)
		}
		t.Add(column, dir, o)
	}
	return nil
}

// ReadRun puts the record in a run's folder together. A record that was cut off gives what it holds.
func ReadRun(dir string) (*record.Outcome, error) {
	events, err := record.ReadFile(filepath.Join(dir, "record.jsonl"))
	if err != nil && !errors.Is(err, record.ErrCut) {
		return nil, err
	}
	o := &record.Outcome{Cut: err != nil}
	for _, e := range events {
		o.Add(e)
	}
	return o, nil
}

// Missing lists the scenarios that have no verdict in a column.
func (t *Table) Missing(column string) []string {
	var missing []string
	for _, s := range t.Scenarios {
		if t.Cell(s, column).State == "" {
			missing = append(missing, s)
		}
	}
	return missing
}

// Count returns how many scenarios ended in a state in a column.
func (t *Table) Count(column, state string) int {
	n := 0
	for _, s := range t.Scenarios {
		if t.Cell(s, column).State == state {
			n++
		}
	}
	return n
}

// Felt says what the pods felt, in a few words: packets lost, and the time from the heal to the last loss.
func (c Cell) Felt() string {
	var parts []string
	if c.Sent > 0 {
		parts = append(parts, fmt.Sprintf("lost %d of %d", c.Lost, c.Sent))
	}
	switch {
	case c.Healed && c.Recovery < 0:
		parts = append(parts, "not recovered")
	case c.Healed && c.Lost > 0:
		parts = append(parts, "recovered after "+text.Short(c.Recovery))
	}
	return strings.Join(parts, ", ")
}
