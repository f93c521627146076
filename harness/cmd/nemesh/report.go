package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/reports/html"
	"github.com/nemesh/nemesh/reports/junit"
	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// reportFile is the report that a person opens.
const reportFile = "index.html"

func reportCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report DIR|RECORD",
		Short: "Render the reports of a run again, and check its verdicts from its data",
		Long: `Render index.html, summary.md, behaviour.md and junit.xml from the record of a run, without root and
without running anything, and compare each verdict with the data beside it. A record that was cut off is
rendered as far as it goes.

Exit codes: 0 rendered, 1 rendered and the record contradicts itself, 2 not a record, or one of another
version.`,
		Example: `  nemesh report reports/latest
  nemesh report record.jsonl --out /tmp/report`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := record.Load(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Dir(args[0])
				if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
					out = args[0]
				}
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return fmt.Errorf("make the report's folder: %w (choose another with --out)", err)
			}
			if _, err := render(o, out); err != nil {
				return err
			}
			return tell(cmd.OutOrStdout(), o, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`folder` for what is rendered (default: beside the record)")
	return cmd
}

// tell says what a record holds and where it contradicts itself.
func tell(w io.Writer, o *record.Outcome, out string) error {
	style := text.Style{}
	for _, s := range o.Scenarios {
		if s.Verdict != nil {
			fmt.Fprintln(w, style.Line(s))
		}
	}
	fmt.Fprint(w, style.Summary(o))
	if ends := text.Ends(o); ends != "" {
		fmt.Fprintln(w, ends)
	}
	wrong := text.Contradictions(o)
	for _, c := range wrong {
		fmt.Fprintln(w, "contradiction:", c)
	}
	fmt.Fprint(w, text.Slowest(o))
	fmt.Fprintln(w, "report:", filepath.Join(out, reportFile))
	if len(wrong) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// render writes every form of the report into a folder and returns the summary.
func render(o *record.Outcome, dir string) (markdown []byte, err error) {
	xml, err := junit.Render(o)
	if err != nil {
		return nil, err
	}
	page, err := os.Create(filepath.Join(dir, reportFile))
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	markdown = []byte(text.Markdown(o))
	err = errors.Join(
		html.Render(page, o),
		page.Close(),
		os.WriteFile(filepath.Join(dir, "junit.xml"), xml, 0o644),
		os.WriteFile(filepath.Join(dir, "summary.md"), markdown, 0o644),
		os.WriteFile(filepath.Join(dir, "behaviour.md"), []byte(text.Behaviour(o)), 0o644),
	)
	if err != nil {
		return nil, fmt.Errorf("write the reports: %w", err)
	}
	return markdown, nil
}

// writeReports renders the reports into the folder of a run, makes that the latest, and tells GitHub
// Actions, where that runs. It returns where a person should look.
func writeReports(o *record.Outcome, dir, reports string) (string, error) {
	markdown, err := render(o, dir)
	if err == nil {
		err = errors.Join(appendStepSummary(markdown), pointLatest(dir, reports))
	}
	if err != nil {
		return "", err
	}
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		fmt.Print(text.Annotations(o))
	}
	return filepath.Join(reports, "latest", reportFile), nil
}

// maxStepSummary is what GitHub takes for a step, in bytes.
const maxStepSummary = 1 << 20

// appendStepSummary adds to the summary of a GitHub Actions step, where there is one.
func appendStepSummary(markdown []byte) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	if len(markdown) > maxStepSummary {
		markdown = append(
			markdown[:maxStepSummary-100:maxStepSummary-100],
			"\n\n… cut off: the rest is in summary.md\n"...)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(markdown)
	return errors.Join(err, f.Close())
}
