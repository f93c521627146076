package text

import (
	"fmt"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
)

// Markdown renders a run as a summary for a pull request or a CI job: a table of verdicts, and what failed.
func Markdown(o *record.Outcome) string {
	var b strings.Builder
	b.WriteString("## nemesh\n\n")
	b.WriteString(strings.TrimSpace(Style{}.Summary(o)) + "\n\n")
	if o.Cut || o.End == nil {
		b.WriteString("**The record ends before the run did.** What follows is all it holds.\n\n")
	}
	b.WriteString("| verdict | scenario | broken | lost / sent | longest outage | recovery | time |\n")
	b.WriteString("|---|---|---|---:|---:|---:|---:|\n")
	for _, s := range o.Scenarios {
		b.WriteString(row(s))
	}
	for _, s := range o.Scenarios {
		if s.Verdict == nil || s.Verdict.State == record.Passed || s.Verdict.State == record.Skipped {
			continue
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n```\n%s\n```\n\nRun it again: `%s`\n", s.Verdict.State, s.Name,
			strings.TrimSpace(Style{}.Failure(s)), Rerun(s.Name))
	}
	if o.Run != nil {
		fmt.Fprintf(&b, "\nnemesh %s, %s, Linux %s, %d CPUs, root %t. Command: `%s`\n", o.Run.Module, o.Run.Go,
			o.Run.Kernel, o.Run.CPUs, o.Run.Root, strings.Join(o.Run.Command, " "))
	}
	return b.String()
}

func row(s *record.Scenario) string {
	v := s.Verdict
	if v == nil {
		return fmt.Sprintf("| not finished | %s | | | | | |\n", cell(s.Name))
	}
	outage, recovery, loss := "", "", ""
	if v.Sent > 0 {
		loss = fmt.Sprintf("%d / %d", v.Lost, v.Sent)
	}
	if v.Lost > 0 {
		outage = Short(time.Duration(v.LongestOutage))
	}
	switch {
	case v.Healed && v.Recovery < 0:
		recovery = "none"
	case v.Healed && v.Lost > 0:
		recovery = Short(time.Duration(v.Recovery))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %.1f s |\n", v.State, cell(s.Name),
		cell(strings.Join(v.Broke, ", ")), loss, outage, recovery, time.Duration(v.Duration).Seconds())
}

// cell keeps a text from ending its table cell.
func cell(text string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text) }
