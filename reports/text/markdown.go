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
	if agents := Agents(o); agents != "" {
		fmt.Fprintf(&b, "Agent: %s\n\n", cell(agents))
	}
	if ends := Ends(o); ends != "" {
		fmt.Fprintf(&b, "**%s**\n\n", ends)
	}
	for _, c := range Contradictions(o) {
		fmt.Fprintf(&b, "**The record contradicts itself:** %s\n\n", c)
	}
	b.WriteString("| verdict | scenario | broken | lost / sent | longest outage | recovery | time |\n")
	b.WriteString("|---|---|---|---:|---:|---:|---:|\n")
	for _, s := range o.Scenarios {
		b.WriteString(row(s))
	}
	drawn := 0
	for _, s := range o.Scenarios {
		if s.Verdict == nil || s.Verdict.State == record.Passed || s.Verdict.State == record.Skipped {
			continue
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n%s\n\nRun it again: `%s`\n", s.Verdict.State, s.Name,
			quoted(s.Sentence()), Rerun(s))
		b.WriteString(promises(o, s))
		if drawn < maxGantts {
			if chart := gantt(s); chart != "" {
				b.WriteString("\n```mermaid\n" + chart + "```\n")
				drawn++
			}
		}
		fmt.Fprintf(&b, "\n<details><summary>What was there</summary>\n\n%s\n</details>\n",
			fenced(strings.TrimSpace(Style{}.Failure(s))))
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
	outage, loss := "", ""
	if v.Sent > 0 {
		loss = fmt.Sprintf("%d / %d", v.Lost, v.Sent)
	}
	if v.Lost > 0 {
		outage = Short(time.Duration(v.LongestOutage))
	}
	recovery := Recovered(v)
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %.1f s |\n", v.State, cell(s.Name),
		cell(strings.Join(Counted(v.Broke), ", ")), loss, outage, recovery, v.Took().Seconds())
}

// promises is a table of the faults that were injected in a scenario: what each breaks, and what should be
// felt. It is "" when there were none.
func promises(o *record.Outcome, s *record.Scenario) string {
	if s.Verdict == nil {
		return ""
	}
	var b strings.Builder
	for _, k := range broken(o, s) {
		component, promised := Said(k)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(label(k)), cell(component), cell(promised))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n| fault | component | promised |\n|---|---|---|\n" + b.String()
}

// quoted keeps a sentence from being read as Markdown or HTML.
func quoted(sentence string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "*", "\\*", "_", "\\_", "`", "\\`", "[", "\\[",
		"\n", " ").Replace(sentence)
}

// fenced puts lines into a block of code that none of them ends.
func fenced(lines string) string {
	fence := "```"
	for strings.Contains(lines, fence) {
		fence += "`"
	}
	return fence + "\n" + record.Plain(lines) + "\n" + fence + "\n"
}

// cell keeps a text from ending its table cell.
func cell(text string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text) }
