package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/checker"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/suite"
	"github.com/nemesh/nemesh/reports/record"
)

// listing is what `nemesh list --json` prints. What was not asked for is absent.
type listing struct {
	Scenarios  []scenario     `json:"scenarios,omitempty"`
	Labels     []listedLabel  `json:"labels,omitempty"`
	Faults     []listedFault  `json:"faults,omitempty"`
	Defects    []listedDefect `json:"defects,omitempty"`
	Invariants []listedOne    `json:"invariants,omitempty"`
}

type listedLabel struct {
	Label string `json:"label"`
	// Scenarios is how many have the label.
	Scenarios int `json:"scenarios"`
}

type listedOne struct {
	ID    string `json:"id"`
	About string `json:"about"`
}

type listedFault struct {
	listedOne
	Component string            `json:"component"`
	Promise   string            `json:"promise"`
	Params    map[string]string `json:"params,omitempty"`
	Lasting   bool              `json:"lasting,omitempty"`
	// Scenarios is how many have the fault's label.
	Scenarios int `json:"scenarios,omitempty"`
}

type listedDefect struct {
	listedOne
	// Scenarios is how many must fail under it.
	Scenarios int `json:"scenarios,omitempty"`
}

// kinds are what can be listed.
var kinds = []string{"scenarios", "labels", "faults", "defects", "invariants"}

func listCommand() *cobra.Command {
	var o runOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [scenarios|labels|faults|defects|invariants]",
		Short: "List scenarios, labels, faults, defects and invariants",
		Long: `List what there is. A scenario's labels choose it in nemesh run:

  issue:…  the report that it comes from, such as issue:flannel-636
  fault:…  what is broken, by an id of nemesh list faults
  kind:…   what it is about, such as kind:lease
  red:…    a defect of nemesh list defects under which the scenario must fail

Faults are listed with what they break, their parameters, in brackets, with what holds for each unless told
otherwise, and what the overlay promises.`,
		Example: `  nemesh list
  nemesh list scenarios
  nemesh list labels
  nemesh list faults --json | jq -r '.faults[].id'
  nemesh list scenarios --json | jq -r '.scenarios[] | select(.labels | index("kind:lease")).name'`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted := kinds
			if len(args) > 0 {
				wanted = args
			}
			l, err := list(cmd.Context(), o, wanted)
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(l)
			}
			return l.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON, for programs")
	o.suite.add(cmd.Flags())
	cmd.Flags().StringVar(&o.bin, "bin", "", "`folder` of the binaries (default: where nemesh is)")
	return cmd
}

// list collects what is wanted. Scenarios come from the suite itself, which only starts in a sandbox.
func list(ctx context.Context, o runOptions, wanted []string) (listing, error) {
	var l listing
	scenarios, labels := slices.Contains(wanted, "scenarios"), slices.Contains(wanted, "labels")
	if scenarios || labels || o.suite.dir != "" || slices.Contains(wanted, "defects") {
		if err := o.findBinaries(); err != nil {
			return l, err
		}
	}
	if scenarios || labels {
		sandbox.Enter()
		all, err := o.scenarios(ctx)
		if err != nil {
			return l, err
		}
		if scenarios {
			l.Scenarios = all
		}
		if labels {
			l.Labels = labelsOf(all)
		}
	}
	own, err := o.suite.ask(ctx, o.bin)
	if err != nil {
		return l, err
	}
	if slices.Contains(wanted, "faults") {
		for _, e := range withOwn(fault.Catalogue(), own) {
			l.Faults = append(l.Faults, listedFault{
				listedOne: listedOne{e.ID, e.About}, Component: string(e.Component), Promise: e.Promise,
				Params: e.Params, Lasting: e.Lasting, Scenarios: labelled(l.Scenarios, record.FaultLabel+e.ID),
			})
		}
	}
	if slices.Contains(wanted, "invariants") {
		for _, v := range checker.All() {
			l.Invariants = append(l.Invariants, listedOne{v.ID, v.Statement})
		}
		for _, v := range own.Invariants {
			l.Invariants = append(l.Invariants, listedOne{v.ID, v.Statement})
		}
	}
	if slices.Contains(wanted, "defects") {
		defects, err := askDefects(ctx, o.bin)
		if err != nil {
			return l, err
		}
		for _, d := range defects {
			l.Defects = append(l.Defects, listedDefect{d, labelled(l.Scenarios, suite.RedPrefix+d.ID)})
		}
	}
	return l, nil
}

// labelsOf lists the labels by which nemesh run chooses scenarios, sorted and so by kind. Ginkgo's own
// labels, such as that of a serial scenario, are left out: they are of no kind.
func labelsOf(all []scenario) []listedLabel {
	count := map[string]int{}
	for _, s := range all {
		for _, l := range s.Labels {
			if label.MatchString(l) {
				count[l]++
			}
		}
	}
	var labels []listedLabel
	for _, l := range slices.Sorted(maps.Keys(count)) {
		labels = append(labels, listedLabel{l, count[l]})
	}
	return labels
}

func labelled(all []scenario, label string) (n int) {
	for _, s := range all {
		if slices.Contains(s.Labels, label) {
			n++
		}
	}
	return n
}

// askDefects asks the special build of the agent which historic defects it can have.
func askDefects(ctx context.Context, bin string) ([]listedOne, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "overlayd-defects"), "--list-defects").Output()
	if err != nil {
		return nil, fmt.Errorf("ask overlayd-defects for its defects: %w (make build makes it)", err)
	}
	return parseDefects(out), nil
}

// parseDefects reads lines of a name, a tab and a description.
func parseDefects(out []byte) (all []listedOne) {
	for line := range bytes.Lines(out) {
		name, about, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")
		if name != "" {
			all = append(all, listedOne{name, strings.TrimSpace(about)})
		}
	}
	return all
}

// print writes a listing for people.
func (l listing) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title := func(name string, n int) {
		if t.Flush() == nil && n > 0 {
			fmt.Fprintf(w, "%s (%d)\n", name, n)
		}
	}
	title("scenarios", len(l.Scenarios))
	for _, s := range l.Scenarios {
		fmt.Fprintf(t, "  %s\n      %s\n", s.Name, strings.Join(s.Labels, " "))
	}
	title("labels", len(l.Labels))
	for _, v := range l.Labels {
		fmt.Fprintf(t, "  %s\t%d\n", v.Label, v.Scenarios)
	}
	title("faults", len(l.Faults))
	for _, f := range l.Faults {
		fmt.Fprintf(t, "  %s\t%s\t%s\n\t\tpromised: %s\n", f.ID, f.Component, f.describe(), f.Promise)
	}
	title("defects", len(l.Defects))
	for _, d := range l.Defects {
		fmt.Fprintf(t, "  %s\t%s\n", d.ID, d.About)
	}
	title("invariants", len(l.Invariants))
	for _, v := range l.Invariants {
		fmt.Fprintf(t, "  %s\t%s\n", v.ID, v.About)
	}
	return t.Flush()
}

// describe says what a fault does, with its parameters.
func (f listedFault) describe() string {
	about := f.About
	if f.Lasting {
		about += " (lasts beyond its heal)"
	}
	var params []string
	for _, name := range slices.Sorted(maps.Keys(f.Params)) {
		params = append(params, name+"="+f.Params[name])
	}
	if len(params) > 0 {
		about += " [" + strings.Join(params, ", ") + "]"
	}
	return about
}
