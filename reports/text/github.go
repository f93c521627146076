package text

import (
	"fmt"
	"strings"

	"github.com/nemesh/nemesh/reports/record"
)

// Annotations are the commands by which GitHub Actions shows each failure at its line of the diff. See
// "Workflow commands for GitHub Actions" in GitHub's documentation.
func Annotations(o *record.Outcome) string {
	var b strings.Builder
	for _, s := range o.Scenarios {
		if s.Verdict != nil && (s.Verdict.State == record.Passed || s.Verdict.State == record.Skipped) {
			continue
		}
		var at string
		if s.Verdict != nil {
			if file, line, ok := strings.Cut(s.Verdict.Location, ":"); ok {
				at = fmt.Sprintf("file=%s,line=%s,", property(file), property(line))
			}
		}
		fmt.Fprintf(&b, "::error %stitle=%s::%s\n", at, property(s.Name), data(s.Sentence()+"\n"+Rerun(s)))
	}
	return b.String()
}

// data escapes what stands after the colons, property what stands before them (the runner's
// ActionCommand.cs).
func data(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

func property(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(text)
}
