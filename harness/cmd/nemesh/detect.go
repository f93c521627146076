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
	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/harness/suite"
)

// exempt is the label of scenarios that no defect can turn red: those that show one already, and those that
// need another vendor's agent.
const exempt = "detect:exempt"

type detectOptions struct {
	bin, out string
	procs    int
	timeout  time.Duration
	all      bool
	suite    suiteFlag
}

func detectCommand() *cobra.Command {
	o := detectOptions{}
	cmd := &cobra.Command{
		Use:   "detect [DEFECT…]",
		Short: "Give the overlay historic defects and see that the scenarios notice",
		Long: `Run, for each historic defect, the scenarios made for it against an overlay that has it. Each must
fail with the reported symptom, and each scenario must fail under one defect at least.

With --suite, those are the scenarios of your own that suite.Red labels, and the defects that they name. The
file defects.yaml in the suite's folder may give a defect another symptom for them: a list of name and
symptom, a regular expression over the message of the failure.

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
	o.suite.add(f)
	f.BoolVar(&o.all, "all", false, "run every scenario under each defect; on two cores minutes for each")
	return cmd
}

func (o *detectOptions) run(ctx context.Context, names []string) error {
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	var err error
	if o.bin, err = o.suite.find(o.bin); err != nil {
		return err
	}
	d := compare.Detection{Runs: map[string]compare.Run{}}
	if d.Scenarios, err = o.scenarios(ctx); err != nil {
		return err
	}
	some := len(names) > 0 || o.suite.dir != ""
	if len(names) == 0 && o.suite.dir != "" {
		if names, err = o.suite.redUnder(d.Scenarios); err != nil {
			return err
		}
	}
	if d.Defects, err = o.defects(ctx, names); err != nil {
		return err
	}
	if some {
		d.OnlyMadeFor()
	}
	for _, defect := range d.Defects {
		began := time.Now()
		run, err := o.under(ctx, defect.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", defect.Name, err)
		}
		d.Runs[defect.Name] = run
		caught := 0
		for _, r := range run.Results {
			if defect.Caught(r) {
				caught++
			}
		}
		fmt.Printf("%-24s %d of %d scenarios red with its symptom, %.0f s\n", defect.Name, caught,
			len(run.Results)-run.Count(compare.Unfinished), time.Since(began).Seconds())
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	text := d.Markdown()
	if err := os.WriteFile(filepath.Join(o.out, "detect.md"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the matrix: %w", err)
	}
	fmt.Printf("\n%s\nmatrix: %s\n", text, filepath.Join(o.out, "detect.md"))
	if len(d.Holes()) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// defects lists those that are asked for: all that the special build has, each of which must have a symptom.
func (o *detectOptions) defects(ctx context.Context, names []string) ([]compare.Defect, error) {
	known, err := compare.ParseDefects(fixtures.Defects)
	if err != nil {
		return nil, err
	}
	own, err := o.suite.symptoms()
	if err != nil {
		return nil, err
	}
	known = append(own, known...) // the first of a name is taken
	listed, err := askDefects(ctx, o.bin)
	if err != nil {
		return nil, err
	}
	var built []string
	for _, d := range listed {
		built = append(built, d.ID)
	}
	return compare.ChooseDefects(known, built, names)
}

// scenarios lists the scenarios and what each says it must fail under.
func (o *detectOptions) scenarios(ctx context.Context) ([]compare.Scenario, error) {
	lister := runOptions{bin: o.bin, suite: o.suite}
	specs, err := lister.scenarios(ctx)
	if err != nil {
		return nil, err
	}
	var all []compare.Scenario
	for _, s := range specs {
		if slices.Contains(s.Labels, exempt) {
			continue
		}
		var red []string
		for _, l := range s.Labels {
			if d, ok := strings.CutPrefix(l, suite.RedPrefix); ok {
				red = append(red, d)
			}
		}
		all = append(all, compare.Scenario{Name: s.Name, Red: red})
	}
	return all, nil
}

// under runs scenarios against an overlay with a defect.
func (o *detectOptions) under(ctx context.Context, defect string) (compare.Run, error) {
	reports := filepath.Join(o.out, defect)
	if err := os.MkdirAll(reports, 0o755); err != nil {
		return compare.Run{}, fmt.Errorf("make the folder of the run: %w", err)
	}
	var said bytes.Buffer
	one := another{
		bin: o.bin, reports: reports, procs: o.procs, timeout: o.timeout, out: &said,
		world: o.suite.args(),
		env:   []string{suite.DefectEnv + "=" + defect, "GITHUB_ACTIONS=", "GITHUB_STEP_SUMMARY="},
	}
	if !o.all {
		one.filters = []string{suite.RedPrefix + defect}
	}
	run, err := one.run(ctx)
	if err == nil && run.Dir == "" {
		err = fmt.Errorf("nemesh run left no report; it said:\n%s", &said)
	}
	return run, err
}
