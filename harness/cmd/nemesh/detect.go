package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/fixtures"
	"github.com/nemesh/nemesh/harness/detect"
	"github.com/nemesh/nemesh/harness/suite"
	"github.com/nemesh/nemesh/reports/record"
)

// exempt is the label of scenarios that no defect can turn red: those that show one already, and those that
// need another vendor's agent.
const exempt = "detect:exempt"

type detectOptions struct {
	bin, out string
	procs    int
	timeout  time.Duration
	all      bool
}

func detectCommand() *cobra.Command {
	o := detectOptions{}
	cmd := &cobra.Command{
		Use:   "detect [DEFECT…]",
		Short: "Give the overlay historic defects and see that the scenarios notice",
		Long: `Run, for each historic defect, the scenarios made for it against an overlay that has it. Each must
fail with the reported symptom, and each scenario must fail under one defect at least.

Exit codes: 0 every defect is caught, 1 one is not, 2 the command line was wrong or nothing could be run.`,
		Example: `  nemesh detect
  nemesh detect deaf rules-once
  nemesh detect --all deaf        also the scenarios that are not made for it`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.bin, "bin", "", "`folder` of the binaries (default: where nemesh is)")
	f.StringVar(&o.out, "out", "reports/detect", "`folder` for the matrix and the record of each run")
	f.IntVar(&o.procs, "procs", 0, "how many scenarios run side by side (default: that of nemesh run)")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "when to give up on one defect")
	f.BoolVar(&o.all, "all", false, "run every scenario under each defect; on two cores minutes for each")
	return cmd
}

func (o *detectOptions) run(ctx context.Context, names []string) error {
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	runner := runOptions{bin: o.bin}
	if err := runner.findBinaries(); err != nil {
		return err
	}
	o.bin = runner.bin
	m := detect.Matrix{}
	var err error
	if m.Defects, err = o.defects(ctx, names); err != nil {
		return err
	}
	if m.Scenarios, err = o.scenarios(ctx, m.Defects, len(names) > 0); err != nil {
		return err
	}
	for _, d := range m.Defects {
		began := time.Now()
		cells, err := o.under(ctx, d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		m.Cells = append(m.Cells, cells...)
		caught := 0
		for _, c := range cells {
			if m.Caught(c) {
				caught++
			}
		}
		fmt.Printf("%-24s %d of %d scenarios red with its symptom, %.0f s\n", d.Name, caught, len(cells),
			time.Since(began).Seconds())
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	text := m.Markdown()
	if err := os.WriteFile(filepath.Join(o.out, "detect.md"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the matrix: %w", err)
	}
	fmt.Printf("\n%s\nmatrix: %s\n", text, filepath.Join(o.out, "detect.md"))
	if len(m.Holes()) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// defects lists those that are asked for: all that the special build has, each of which must have a symptom.
func (o *detectOptions) defects(ctx context.Context, names []string) ([]detect.Defect, error) {
	known, err := detect.Parse(fixtures.Defects)
	if err != nil {
		return nil, err
	}
	listed, err := askDefects(ctx, o.bin)
	if err != nil {
		return nil, err
	}
	var built []string
	for _, d := range listed {
		built = append(built, d.ID)
	}
	if len(names) == 0 {
		names = built
	}
	var wanted []detect.Defect
	for _, name := range names {
		if !slices.Contains(built, name) {
			return nil, fmt.Errorf("there is no defect %q; there are: %s", name, strings.Join(built, ", "))
		}
		i := slices.IndexFunc(known, func(d detect.Defect) bool { return d.Name == name })
		if i < 0 {
			return nil, fmt.Errorf(
				"defect %s has no symptom in fixtures/defects.yaml: add the one it must be known by",
				name,
			)
		}
		wanted = append(wanted, known[i])
	}
	return wanted, nil
}

// scenarios lists the scenarios and what each says it must fail under. Of a choice of defects, only what is
// made for those counts.
func (o *detectOptions) scenarios(
	ctx context.Context,
	ds []detect.Defect,
	some bool,
) ([]detect.Scenario, error) {
	lister := runOptions{bin: o.bin}
	specs, err := lister.scenarios(ctx)
	if err != nil {
		return nil, err
	}
	var all []detect.Scenario
	for _, s := range specs {
		var red []string
		for _, l := range s.Labels {
			if d, ok := strings.CutPrefix(l, suite.RedPrefix); ok {
				red = append(red, d)
			}
		}
		chosen := slices.ContainsFunc(ds, func(d detect.Defect) bool { return slices.Contains(red, d.Name) })
		if slices.Contains(s.Labels, exempt) || some && !chosen {
			continue
		}
		all = append(all, detect.Scenario{Name: s.Name, Red: red})
	}
	return all, nil
}

// under runs scenarios against an overlay with a defect.
func (o *detectOptions) under(ctx context.Context, d detect.Defect) ([]detect.Cell, error) {
	reports := filepath.Join(o.out, d.Name)
	if err := os.MkdirAll(reports, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the run: %w", err)
	}
	var said bytes.Buffer
	run := another{bin: o.bin, reports: reports, procs: o.procs, timeout: o.timeout, out: &said,
		env: []string{suite.DefectEnv + "=" + d.Name, "GITHUB_ACTIONS=", "GITHUB_STEP_SUMMARY="}}
	if !o.all {
		run.filters = []string{suite.RedPrefix + d.Name}
	}
	if err := run.run(ctx); err != nil {
		return nil, err
	}
	outcome, err := record.Load(filepath.Join(reports, "latest", "record.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("%w; nemesh run said:\n%s", err, &said)
	}
	var cells []detect.Cell
	for _, s := range outcome.Scenarios {
		if s.Verdict != nil {
			cells = append(cells, detect.Cell{
				Defect: d.Name, Scenario: s.Name, State: s.Verdict.State, Message: s.Verdict.Message,
			})
		}
	}
	return cells, nil
}
