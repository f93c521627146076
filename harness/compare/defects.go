package compare

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

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

// ParseDefects reads the list of defects. Unknown fields, missing names and expressions that are none, or
// that any failure matches, are refused.
func ParseDefects(raw []byte) ([]Defect, error) {
	var all []Defect
	if err := decode(raw, &all); err != nil {
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

// ChooseDefects returns the named ones of those that the special build has; all of them without a name. It
// is an error when one is not built or has no symptom among the known ones.
func ChooseDefects(known []Defect, built, names []string) ([]Defect, error) {
	if len(names) == 0 {
		names = built
	}
	var chosen []Defect
	for _, name := range names {
		if !slices.Contains(built, name) {
			return nil, fmt.Errorf("there is no defect %q; there are: %s", name, strings.Join(built, ", "))
		}
		i := slices.IndexFunc(known, func(d Defect) bool { return d.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("defect %s has no symptom in fixtures/defects.yaml: add the one it must be "+
				"known by", name)
		}
		chosen = append(chosen, known[i])
	}
	return chosen, nil
}

// Caught reports whether a scenario failed with the defect's symptom. A failure for another reason does not
// prove that the scenario notices the defect.
func (d Defect) Caught(r Result) bool {
	return r.State == record.Failed && regexp.MustCompile(d.Symptom).MatchString(r.Message)
}

// Scenario is a scenario and the defects under which it must fail.
type Scenario struct {
	Name string
	Red  []string
}

// Detection says whether the scenarios notice the historic defects: each defect must turn the scenarios made
// for it red, with the symptom that was reported, and at least one must turn each scenario red.
type Detection struct {
	Defects   []Defect
	Scenarios []Scenario
	// Runs are by the name of the defect that the overlay had.
	Runs map[string]Run
}

// OnlyMadeFor leaves the scenarios that are made for one of the defects.
func (t *Detection) OnlyMadeFor() {
	t.Scenarios = slices.DeleteFunc(t.Scenarios, func(s Scenario) bool {
		return !slices.ContainsFunc(t.Defects, func(d Defect) bool { return slices.Contains(s.Red, d.Name) })
	})
}

// Holes lists what is missing, a sentence each: a defect that no scenario is made for or that one made for
// it does not catch, and a scenario that no defect turns red.
func (t Detection) Holes() []string {
	var holes []string
	for _, d := range t.Defects {
		made := 0
		for _, s := range t.Scenarios {
			if !slices.Contains(s.Red, d.Name) {
				continue
			}
			made++
			switch r := t.Runs[d.Name].Result(s.Name); {
			case r.State == "" || r.State == Unfinished:
				holes = append(holes, fmt.Sprintf("%s was not run under %s", s.Name, d.Name))
			case r.State != record.Failed:
				holes = append(holes, fmt.Sprintf("%s is %s under %s, and should fail", s.Name, r.State, d.Name))
			case !d.Caught(r):
				holes = append(holes, fmt.Sprintf("%s fails under %s, but not with its symptom %q: %s", s.Name, d.Name,
					d.Symptom, r.firstLine()))
			}
		}
		if made == 0 {
			holes = append(holes, "no scenario is made for "+d.Name)
		}
	}
	for _, s := range t.Scenarios {
		catches := func(d Defect) bool { return d.Caught(t.Runs[d.Name].Result(s.Name)) }
		if !slices.ContainsFunc(t.Defects, catches) {
			holes = append(holes, "no defect turns this scenario red: "+s.Name)
		}
	}
	return holes
}

// Markdown renders for each defect the scenarios that caught it, those made for it first, and the holes.
func (t Detection) Markdown() string {
	var rows [][]string
	for _, d := range t.Defects {
		var made, others []string
		for _, s := range t.Scenarios {
			r := t.Runs[d.Name].Result(s.Name)
			red := slices.Contains(s.Red, d.Name)
			switch {
			case red && d.Caught(r):
				made = append(made, cell(s.Name))
			case red:
				made = append(made, "**missed: "+cell(s.Name)+"**")
			case r.State == record.Failed:
				others = append(others, cell(s.Name))
			}
		}
		rows = append(rows, []string{d.Name, strings.Join(made, "<br>"), strings.Join(others, "<br>")})
	}
	said := markdown([]string{"defect", "caught by the scenarios made for it", "also caught by"}, rows)
	if holes := t.Holes(); len(holes) > 0 {
		said += "\nHoles:\n\n- " + strings.Join(holes, "\n- ") + "\n"
	}
	return said
}
