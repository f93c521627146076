package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/compare"
)

func diffCommand() *cobra.Command {
	var opts compare.Options
	var page string
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two runs and fail when something got worse",
		Long: `Compare two runs, each the folder of a report or its record.jsonl: verdicts that changed, and
losses, outages and recovery times that moved.

Worse is a verdict further from passed, any loss where there was none, and a loss, an outage or a
recovery that has grown beyond the tolerance. A scenario that passed in A and is not in B is worse too,
unless --missing is given.

Exit codes: 0 nothing got worse, 1 something did, 2 a run cannot be read.`,
		Example: `  nemesh diff reports/runs/20260102-… reports/latest
  nemesh diff main/record.jsonl reports/latest --html diff.html`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := compare.Read(args[0])
			if err != nil {
				return fmt.Errorf("run A: %w", err)
			}
			b, err := compare.Read(args[1])
			if err != nil {
				return fmt.Errorf("run B: %w", err)
			}
			d := compare.Runs(a, b, opts)
			fmt.Fprint(cmd.OutOrStdout(), d.Table())
			if err := writeDiff(page, d); err != nil {
				return err
			}
			if d.GotWorse() {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&page, "html", "", "write the comparison as HTML to this `file`")
	f.Float64Var(
		&opts.Tolerance,
		"tolerance",
		0.5,
		"how much a loss or time may grow, as a part of what it was",
	)
	f.DurationVar(&opts.Least, "least", 0, "how much a time must grow in any case (default 500ms)")
	f.BoolVar(&opts.Missing, "missing", false, "let scenarios be missing from B")
	return cmd
}

func writeDiff(path string, d compare.Diff) error {
	if path == "" {
		return nil
	}
	page, err := d.HTML()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, page, 0o644); err != nil {
		return fmt.Errorf("write the comparison: %w (choose another with --html)", err)
	}
	return nil
}
