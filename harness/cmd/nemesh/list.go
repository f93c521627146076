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
)

// listing is what `nemesh list --json` prints. What was not asked for is absent.
type listing struct {
	Scenarios  []scenario     `json:"scenarios,omitempty"`
	Faults     []listedFault  `json:"faults,omitempty"`
	Defects    []listedDefect `json:"defects,omitempty"`
	Invariants []listedOne    `json:"invariants,omitempty"`
}

type listedOne struct {
	ID    string `json:"id"`
	About string `json:"about"`
}

type listedFault struct {
	listedOne
	Args    map[string]string `json:"args,omitempty"`
	Lasting bool              `json:"lasting,omitempty"`
	// Scenarios is how many have the fault's label.
	Scenarios int `json:"scenarios,omitempty"`
}

type listedDefect struct {
	listedOne
	// Scenarios is how many must fail under it.
	Scenarios int `json:"scenarios,omitempty"`
}

// kinds are what can be listed.
var kinds = []string{"scenarios", "faults", "defects", "invariants"}

func listCommand() *cobra.Command {
	var o runOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [scenarios|faults|defects|invariants]",
		Short: "List scenarios with their labels, faults, defects and invariants",
		Long: `List what there is. A scenario's labels choose it in nemesh run:

  issue:…  the report that it comes from, such as issue:flannel-636
  fault:…  what is broken, by an id of nemesh list faults
  kind:…   what it is about, such as kind:lease
  red:…    a defect of nemesh list defects under which the scenario must fail

Faults are listed with their arguments, in brackets, and what holds for each unless told otherwise.`,
		Example: `  nemesh list
  nemesh list scenarios
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
	scenarios := slices.Contains(wanted, "scenarios")
	if scenarios || o.suite.dir != "" || slices.Contains(wanted, "defects") {
		if err := o.findBinaries(); err != nil {
			return l, err
		}
	}
	if scenarios {
		sandbox.Enter()
		var err error
		if l.Scenarios, err = o.scenarios(ctx); err != nil {
			return l, err
		}
	}
	if slices.Contains(wanted, "faults") {
		for _, e := range fault.Catalogue() {
			l.Faults = append(l.Faults, listedFault{listedOne{e.ID, e.About}, e.Args, e.Lasting,
				labelled(l.Scenarios, "fault:"+e.ID)})
		}
	}
	if slices.Contains(wanted, "invariants") {
		for _, v := range checker.All() {
			l.Invariants = append(l.Invariants, listedOne{v.ID, v.Statement})
		}
		own, err := o.suite.ask(ctx, o.bin)
		if err != nil {
			return l, err
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
	title("faults", len(l.Faults))
	for _, f := range l.Faults {
		var args []string
		for _, name := range slices.Sorted(maps.Keys(f.Args)) {
			args = append(args, name+"="+f.Args[name])
		}
		about := f.About
		if f.Lasting {
			about += " (lasts beyond its heal)"
		}
		if len(args) > 0 {
			about += " [" + strings.Join(args, ", ") + "]"
		}
		fmt.Fprintf(t, "  %s\t%s\n", f.ID, about)
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
