package compare

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nemesh/nemesh/reports/record"
)

// Baseline is a file with the failures that are known of an agent and version.
type Baseline struct {
	// Agent is the name of the driver and Version what its binary says.
	Agent   string `yaml:"agent"`
	Version string `yaml:"version"`
	// Failures are sorted by scenario.
	Failures []Failure `yaml:"failures"`
}

// Failure is a scenario that is known not to pass.
type Failure struct {
	Scenario string `yaml:"scenario"`
	// Verdict is record.Failed or record.Unproven; empty for the first.
	Verdict string `yaml:"verdict,omitempty"`
	// Sometimes says that it passes now and then, as a race does, so that neither is a change.
	Sometimes bool `yaml:"sometimes,omitempty"`
	// Issue is where it is reported, such as flannel-636; Symptom is one sentence of what is seen.
	Issue   string `yaml:"issue"`
	Symptom string `yaml:"symptom"`
}

// expected is what the scenario is known to do.
func (f Failure) expected() Result {
	return Result{Scenario: f.Scenario, Verdict: record.Verdict{
		State: cmp.Or(f.Verdict, record.Failed), Message: f.Symptom, Labels: []string{issueLabel + f.Issue},
	}}
}

// ParseBaseline reads a file. It refuses fields that it does not know, and failures without a scenario or a
// symptom.
func ParseBaseline(raw []byte) (Baseline, error) {
	var b Baseline
	if err := decode(raw, &b); err != nil {
		return Baseline{}, fmt.Errorf("it is no baseline: %w", err)
	}
	var errs []error
	if b.Agent == "" || b.Version == "" {
		errs = append(errs, errors.New("agent and version are needed"))
	}
	seen := map[string]bool{}
	for i, f := range b.Failures {
		switch state := f.expected().State; {
		case f.Scenario == "" || f.Symptom == "":
			errs = append(errs, fmt.Errorf("failure %d needs a scenario and a symptom", i+1))
		case seen[f.Scenario]:
			errs = append(errs, fmt.Errorf("%q is there twice", f.Scenario))
		case state != record.Failed && state != record.Unproven:
			errs = append(errs, fmt.Errorf("%q has the verdict %q: it is %q or %q", f.Scenario, f.Verdict,
				record.Failed, record.Unproven))
		}
		seen[f.Scenario] = true
	}
	return b, errors.Join(errs...)
}

// decode reads YAML and refuses fields that are not known.
func decode(raw []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	return dec.Decode(into)
}

// unfit is what does not go into the name of a file.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.+_-]+`)

// FileName is what the file of an agent and version is called.
func FileName(agent, version string) string {
	return unfit.ReplaceAllString(agent+"-"+version, "_") + ".yaml"
}

// FindBaseline reads the baseline of an agent and version. Place is a file, which is taken whatever it is
// called, or a folder. Found is false where there is none.
func FindBaseline(place, agent, version string) (b Baseline, found bool, err error) {
	if info, err := os.Stat(place); err == nil && info.IsDir() {
		place = filepath.Join(place, FileName(agent, version))
	}
	raw, err := os.ReadFile(place)
	if errors.Is(err, os.ErrNotExist) {
		return Baseline{}, false, nil
	}
	if err != nil {
		return Baseline{}, false, fmt.Errorf("read the baseline: %w", err)
	}
	if b, err = ParseBaseline(raw); err != nil {
		return Baseline{}, false, fmt.Errorf("the baseline %s: %w", place, err)
	}
	return b, true, nil
}

// NewBaseline writes down what did not pass in a run, which must have gone to its end. What old says of a
// scenario is kept where the verdict is the same, and so are its scenarios that the run did not have; the
// rest is taken from the record.
func NewBaseline(run Run, old Baseline) (Baseline, error) {
	switch {
	case run.About.Agent == "":
		return Baseline{}, fmt.Errorf("the record in %s does not say which agent it is of", run.Dir)
	case len(run.Results) == 0:
		return Baseline{}, fmt.Errorf("no scenario was run in %s: there is nothing to write down", run.Dir)
	case !run.Whole || run.Count(Unfinished) > 0:
		return Baseline{}, fmt.Errorf("the run in %s did not end: its baseline would lack scenarios", run.Dir)
	}
	known := old.known()
	for _, is := range run.Results {
		was, ok := known[is.Scenario]
		switch {
		case is.Interrupted:
			return Baseline{}, fmt.Errorf("the run in %s was interrupted, during %q: let one go to its end first",
				run.Dir, is.Scenario)
		case is.State == record.Skipped, ok && (was.Sometimes || was.expected().State == is.State):
		case is.State == record.Passed:
			delete(known, is.Scenario)
		default:
			f := Failure{Scenario: is.Scenario, Issue: is.issue(), Symptom: is.firstLine()}
			if is.State != record.Failed {
				f.Verdict = is.State
			}
			known[is.Scenario] = f
		}
	}
	return Baseline{
		Agent: run.About.Agent, Version: run.About.AgentVersion,
		Failures: slices.SortedFunc(maps.Values(known),
			func(x, y Failure) int { return cmp.Compare(x.Scenario, y.Scenario) }),
	}, nil
}

func (b Baseline) known() map[string]Failure {
	known := map[string]Failure{}
	for _, f := range b.Failures {
		known[f.Scenario] = f
	}
	return known
}

// header explains a file to who opens it.
const header = `# Scenarios that this version of the agent is known to fail, as measured. A run compares
# itself with them, and only what changed counts. Written by: nemesh baseline
`

// Write writes the file of the baseline into a folder, which it makes if needed, and returns its path.
func (b Baseline) Write(dir string) (string, error) {
	var out bytes.Buffer
	out.WriteString(header)
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	path := filepath.Join(dir, FileName(b.Agent, b.Version))
	err := errors.Join(enc.Encode(b), enc.Close())
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, out.Bytes(), 0o644))
	}
	if err != nil {
		return "", fmt.Errorf("write the baseline: %w", err)
	}
	return path, nil
}

// Changes is a run against a baseline.
type Changes struct {
	Baseline Baseline
	// Rows are Worse where a scenario failed and should not have, or in another way; Better where it passed and
	// should not have; and of no way where it failed as the baseline says. The rest is left out.
	Rows Differences
	// ended counts the scenarios that passed or failed as expected, unfinished those that did not end.
	ended, unfinished int
}

// Compare compares a run with a baseline.
func (b Baseline) Compare(run Run) Changes {
	known := b.known()
	c := Changes{Baseline: b, ended: run.Count(record.Passed), unfinished: run.Count(Unfinished)}
	for _, is := range run.Results {
		d := Difference{Was: Result{Verdict: record.Verdict{State: record.Passed}}, Is: is}
		passed := is.State == record.Passed
		if f, ok := known[is.Scenario]; ok && (!f.Sometimes || !passed) {
			d.Was = f.expected()
		}
		switch {
		case is.State == record.Skipped || is.State == Unfinished || passed && d.Was.State == record.Passed:
			continue
		case d.Was.State == is.State:
			c.ended++
		case passed:
			d.Way = Better
		default:
			d.Way = Worse
		}
		c.Rows = append(c.Rows, d)
	}
	return c
}

// Exit returns the exit code of a run that is compared: 1 when something changed, 2 when a scenario did not
// end or none did, 0 when all is as expected. A change to "not proven" is 2 unless something else changed
// too.
func (c Changes) Exit() int {
	unproven := 0
	for _, d := range c.Rows.In(Worse) {
		if d.Is.State == record.Unproven {
			unproven++
		}
	}
	switch {
	case len(c.Rows.In(Worse)) > unproven || len(c.Rows.In(Better)) > 0:
		return 1
	case unproven > 0 || c.unfinished > 0 || c.ended == 0:
		return 2
	default:
		return 0
	}
}

// Changed reports whether a verdict is not what the baseline says.
func (c Changes) Changed() bool { return len(c.Rows) > len(c.Rows.In("")) }

// Text renders the changes for people: what changed, then what did not in one line each.
func (c Changes) Text() string {
	var out strings.Builder
	as, worse, better := c.Rows.In(""), c.Rows.In(Worse), c.Rows.In(Better)
	fmt.Fprintf(&out, "\nagainst the baseline of %s %s: %d expected failures, %d unexpected failures, "+
		"%d unexpected passes\n", c.Baseline.Agent, c.Baseline.Version, len(as), len(worse), len(better))
	for _, d := range worse {
		fmt.Fprintf(&out, "  unexpected failure  %s: %s, expected %s\n", d.Scenario(), d.Is.State, d.Was.State)
		if d.Was.State != record.Passed {
			fmt.Fprintf(&out, "                      known was (%s): %s\n", d.Was.issue(), d.Was.Message)
		}
	}
	for _, d := range better {
		fmt.Fprintf(&out, "  unexpected pass     %s: known was (%s): %s\n", d.Scenario(), d.Was.issue(),
			d.Was.Message)
	}
	for _, d := range as {
		fmt.Fprintf(&out, "  expected failure    %s (%s): %s\n", d.Scenario(), d.Was.issue(), d.Was.Message)
	}
	return out.String()
}
