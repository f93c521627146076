package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/baseline"
	"github.com/nemesh/nemesh/harness/matrix"
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

func (o baselineOptions) write(run string) error {
	outcome, err := matrix.ReadRun(run)
	if err != nil {
		return fmt.Errorf("read the run: %w (nemesh run makes one)", err)
	}
	switch {
	case outcome.Run == nil || outcome.Run.Agent == "":
		return fmt.Errorf("the record in %s does not say which agent it is of", run)
	case len(outcome.Scenarios) == 0:
		return fmt.Errorf("no scenario was run in %s: there is nothing to write down", run)
	case outcome.End == nil || outcome.Unfinished() > 0:
		return fmt.Errorf("the run in %s did not end: its baseline would lack scenarios", run)
	}
	for _, s := range outcome.Scenarios {
		if s.Verdict.Interrupted {
			return fmt.Errorf("the run in %s was interrupted, during %q: let one go to its end first", run, s.Name)
		}
	}
	agent, version := outcome.Run.Agent, outcome.Run.AgentVersion
	old, _, err := baseline.Find(o.dir, agent, version)
	if err != nil {
		return err
	}
	fresh := baseline.From(outcome, old, agent, version)
	raw, err := fresh.YAML()
	if err != nil {
		return err
	}
	path := filepath.Join(o.dir, baseline.FileName(agent, version))
	if err := errors.Join(os.MkdirAll(o.dir, 0o755), os.WriteFile(path, raw, 0o644)); err != nil {
		return fmt.Errorf("write the baseline: %w", err)
	}
	fmt.Printf("%s: %d known failures (before: %d)\n", path, len(fresh.Failures), len(old.Failures))
	return nil
}
