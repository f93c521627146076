// Package detect judges whether the scenarios notice the historic defects: each defect must turn the
// scenarios made for it red, with the symptom that was reported, and each scenario must be turned red by one
// at least. A harness that cannot fail proves nothing.
package detect

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nemesh/nemesh/reports/record"
)

// Defect is a historic failure that the special build of the overlay can have.
type Defect struct {
	Name string `yaml:"name"`
	// Symptom is a regular expression over the message of a scenario that it turned red.
	Symptom string `yaml:"symptom"`
}

// anything is what no symptom may match.
const anything = "Timed out after 10.001s."

// Parse reads the list of defects. Unknown fields, missing names and expressions that are none, or that any
// failure matches, are refused.
func Parse(raw []byte) ([]Defect, error) {
	var all []Defect
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("it is no list of defects: %w", err)
	}
	var errs []error
	for _, d := range all {
		symptom, err := regexp.Compile(d.Symptom)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the symptom of defect %q is no regular expression: %w", d.Name, err))
		case d.Name == "" || d.Symptom == "":
			errs = append(errs, fmt.Errorf("defect %q needs a name and a symptom", d.Name))
		case symptom.MatchString(anything) || symptom.MatchString(""):
			errs = append(errs, fmt.Errorf("any failure at all has the symptom %q of defect %s: give it the words "+
				"of the failure that was reported", d.Symptom, d.Name))
		}
	}
	return all, errors.Join(errs...)
}

// Scenario is one scenario and the defects under which it must fail.
type Scenario struct {
	Name string
	Red  []string
}

// Cell is what became of a scenario under a defect.
type Cell struct {
	Defect, Scenario string
	// State is the verdict's; empty when it was not run.
	State   string
	Message string
}

// Matrix is scenario × defect.
type Matrix struct {
	Defects   []Defect
	Scenarios []Scenario
	Cells     []Cell
}

// Caught reports whether a cell is red with the defect's symptom.
func (m Matrix) Caught(c Cell) bool {
	for _, d := range m.Defects {
		if d.Name == c.Defect {
			return c.State == record.Failed && regexp.MustCompile(d.Symptom).MatchString(c.Message)
		}
	}
	return false
}

// Holes lists what keeps the matrix from being whole, a sentence each: a defect that no scenario is made for
// or that one made for it does not catch, and a scenario that no defect turns red.
func (m Matrix) Holes() []string {
	var holes []string
	caught := map[string]bool{}
	for _, c := range m.Cells {
		if m.Caught(c) {
			caught[c.Scenario] = true
		}
	}
	for _, d := range m.Defects {
		made := 0
		for _, s := range m.Scenarios {
			if !slices.Contains(s.Red, d.Name) {
				continue
			}
			made++
			c := m.cell(d.Name, s.Name)
			switch {
			case c.State == "":
				holes = append(holes, fmt.Sprintf("%s was not run under %s", s.Name, d.Name))
			case c.State != record.Failed:
				holes = append(holes, fmt.Sprintf("%s is %s under %s, and should fail", s.Name, c.State, d.Name))
			case !m.Caught(c):
				holes = append(holes, fmt.Sprintf("%s fails under %s, but not with its symptom %q: %s", s.Name, d.Name,
					d.Symptom, firstLine(c.Message)))
			}
		}
		if made == 0 {
			holes = append(holes, "no scenario is made for "+d.Name)
		}
	}
	for _, s := range m.Scenarios {
		if !caught[s.Name] {
			holes = append(holes, "no defect turns this scenario red: "+s.Name)
		}
	}
	return holes
}

func (m Matrix) cell(defect, scenario string) Cell {
	for _, c := range m.Cells {
		if c.Defect == defect && c.Scenario == scenario {
			return c
		}
	}
	return Cell{}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// Markdown renders the matrix: for each defect the scenarios that caught it, those made for it first.
func (m Matrix) Markdown() string {
	var b strings.Builder
	b.WriteString("| defect | caught by the scenarios made for it | also caught by |\n|---|---|---|\n")
	for _, d := range m.Defects {
		var made, others []string
		for _, s := range m.Scenarios {
			c := m.cell(d.Name, s.Name)
			red := slices.Contains(s.Red, d.Name)
			switch {
			case red && m.Caught(c):
				made = append(made, s.Name)
			case red:
				made = append(made, "**missed: "+s.Name+"**")
			case c.State == record.Failed:
				others = append(others, s.Name)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d.Name, strings.Join(made, "<br>"), strings.Join(others, "<br>"))
	}
	if holes := m.Holes(); len(holes) > 0 {
		b.WriteString("\nHoles:\n\n- " + strings.Join(holes, "\n- ") + "\n")
	}
	return b.String()
}
