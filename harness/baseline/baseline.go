// Package baseline keeps what is known to fail: a file for each agent and version with its failing
// scenarios, each with the number of the issue and what is seen. A run is compared with it, so that only
// what has changed counts.
package baseline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nemesh/nemesh/reports/record"
)

// Baseline is one file.
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

// verdict is the one that is expected.
func (f Failure) verdict() string { return cmp.Or(f.Verdict, record.Failed) }

// Parse reads a file. It refuses fields that it does not know, and failures without a scenario or a symptom.
func Parse(raw []byte) (Baseline, error) {
	var b Baseline
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&b); err != nil {
		return Baseline{}, fmt.Errorf("it is no baseline: %w", err)
	}
	var errs []error
	if b.Agent == "" || b.Version == "" {
		errs = append(errs, errors.New("agent and version are needed"))
	}
	seen := map[string]bool{}
	for i, f := range b.Failures {
		switch {
		case f.Scenario == "" || f.Symptom == "":
			errs = append(errs, fmt.Errorf("failure %d needs a scenario and a symptom", i+1))
		case seen[f.Scenario]:
			errs = append(errs, fmt.Errorf("%q is there twice", f.Scenario))
		case f.verdict() != record.Failed && f.verdict() != record.Unproven:
			errs = append(
				errs,
				fmt.Errorf("%q has the verdict %q: it is %q or %q", f.Scenario, f.Verdict, record.Failed,
					record.Unproven),
			)
		}
		seen[f.Scenario] = true
	}
	return b, errors.Join(errs...)
}

// Read reads a file.
func Read(path string) (Baseline, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Baseline{}, fmt.Errorf("read the baseline: %w", err)
	}
	b, err := Parse(raw)
	if err != nil {
		return Baseline{}, fmt.Errorf("the baseline %s: %w", path, err)
	}
	return b, nil
}

// header explains a file to who opens it.
const header = `# Scenarios that this version of the agent is known to fail, as measured. A run compares
# itself with them, and only what changed counts. Written by: nemesh baseline
`

// YAML renders a file.
func (b Baseline) YAML() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(header)
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(b), enc.Close()); err != nil {
		return nil, fmt.Errorf("write the baseline: %w", err)
	}
	return out.Bytes(), nil
}

// unfit is what does not go into the name of a file.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.+_-]+`)

// FileName is what the file of an agent and version is called.
func FileName(agent, version string) string {
	return unfit.ReplaceAllString(agent+"-"+version, "_") + ".yaml"
}

// Find reads the file of an agent and version in a folder. Found is false where there is none.
func Find(dir, agent, version string) (b Baseline, found bool, err error) {
	path := filepath.Join(dir, FileName(agent, version))
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return Baseline{}, false, nil
	}
	b, err = Read(path)
	return b, err == nil, err
}

// From writes down what did not pass in a run. What old says of a scenario is kept where the verdict is the
// same, and so are its scenarios that the run did not have; the rest is taken from the record.
func From(o *record.Outcome, old Baseline, agent, version string) Baseline {
	known := map[string]Failure{}
	for _, f := range old.Failures {
		known[f.Scenario] = f
	}
	for _, s := range o.Scenarios {
		if s.Verdict == nil || s.Verdict.State == record.Skipped {
			continue
		}
		was, ok := known[s.Name]
		switch state := s.Verdict.State; {
		case ok && (was.Sometimes || was.verdict() == state):
		case state == record.Passed:
			delete(known, s.Name)
		default:
			f := Failure{Scenario: s.Name, Issue: issueOf(s.Verdict.Labels), Symptom: symptomOf(s.Verdict.Message)}
			if state != record.Failed {
				f.Verdict = state
			}
			known[s.Name] = f
		}
	}
	b := Baseline{Agent: agent, Version: version, Failures: []Failure{}}
	for _, f := range known {
		b.Failures = append(b.Failures, f)
	}
	slices.SortFunc(b.Failures, func(x, y Failure) int { return cmp.Compare(x.Scenario, y.Scenario) })
	return b
}

// issueOf finds the issue in the labels of a scenario.
func issueOf(labels []string) string {
	for _, l := range labels {
		if issue, ok := strings.CutPrefix(l, "issue:"); ok {
			return issue
		}
	}
	return "none"
}

// symptomOf takes the first line of a message that says something; a person is to put it better.
func symptomOf(message string) string {
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" {
			const long = 200
			if runes := []rune(line); len(runes) > long {
				line = string(runes[:long]) + "…"
			}
			return line
		}
	}
	return "it failed without a message"
}
