package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/compare"
)

// baselineOptions are the flags of `nemesh baseline`.
type baselineOptions struct {
	reports, dir string
}

func baselineCommand() *cobra.Command {
	o := baselineOptions{}
	cmd := &cobra.Command{
		Use:   "baseline [RUN]",
		Short: "Write down which scenarios an agent is known to fail",
		Long: `Write the expected failures of an agent and version from a run: RUN is the folder of one, the
newest by default. What the file already says of a scenario is kept while its verdict is the
same, and so are the scenarios that the run did not have; one that passes now is taken out.
Symptoms that were taken from the record are for you to put into one sentence.`,
		Example: `  nemesh run --agent /usr/local/bin/flanneld && nemesh baseline
  nemesh baseline reports/runs/20260102-150405-123`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			run := filepath.Join(o.reports, "latest")
			if len(args) > 0 {
				run = args[0]
			}
			return o.write(run)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.reports, "reports", "reports", "`folder` with the reports of runs")
	f.StringVar(&o.dir, "dir", "fixtures/baselines", "`folder` of the baselines")
	return cmd
}

func (o baselineOptions) write(path string) error {
	run, err := compare.Read(path)
	if err != nil {
		return fmt.Errorf("read the run: %w (nemesh run makes one)", err)
	}
	old, _, err := compare.FindBaseline(o.dir, run.About.Agent, run.About.AgentVersion)
	if err != nil {
		return err
	}
	fresh, err := compare.NewBaseline(run, old)
	if err != nil {
		return err
	}
	file, err := fresh.Write(o.dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d known failures (before: %d)\n", file, len(fresh.Failures), len(old.Failures))
	return nil
}
