package record

import (
	"fmt"
	"regexp"
	"strings"
)

// Sentence says in one sentence why a scenario did not pass: where a followed packet died, which invariant
// does not hold, or what its assertion wanted. It is "" for one that passed.
func (s *Scenario) Sentence() string {
	v := s.Verdict
	switch {
	case v == nil:
		return "the scenario did not end"
	case v.State == Passed:
		return ""
	}
	for _, t := range s.Traces {
		if t.Sentence != "" && v.State == Failed {
			return fmt.Sprintf("%s → %s: %s", t.From, t.To, t.Sentence)
		}
	}
	for _, i := range s.Invariants {
		if !i.OK && !i.Waived && v.State == Failed {
			return cut(i.Name + " does not hold: " + strings.Join(i.Details, "; "))
		}
	}
	return Told(v.Message)
}

// maxSentence is how long a sentence made from a message may get, in characters, and maxValue a value in it.
const (
	maxSentence = 240
	maxValue    = 60
)

// Gomega's messages: what was expected begins with one of these lines, after what the scenario says itself;
// a value stands indented below, behind its type.
var (
	expects  = regexp.MustCompile(`^Expected( success, but got an error:)?$|^Unexpected error:$`)
	typed    = regexp.MustCompile(`^\s*<([^|>]*)(?:\| *(?:len:(\d+)(?:, cap:\d+)?|0x[0-9a-f]+))?>:\s*(.*)$`)
	timedOut = regexp.MustCompile(`^(?:Timed out|Failed) after ([0-9.]+)s\.$`)
	within   = regexp.MustCompile(`^The function passed to \S+ failed at .* with:$`)
)

// Told makes one sentence of the message of an assertion. The dumps of values by which Gomega explains a
// mismatch become "9 values" or the value itself where it is short; a message of another form is put on one
// line.
func Told(message string) string {
	lines := strings.Split(strings.TrimSpace(Plain(message)), "\n")
	waited := ""
	if m := timedOut.FindStringSubmatch(lines[0]); m != nil && len(lines) > 1 {
		waited, lines = fmt.Sprintf(" (after %s s)", m[1]), lines[1:]
	}
	if len(lines) > 1 && within.MatchString(lines[0]) {
		lines = lines[1:]
	}
	at := 0
	for at < len(lines) && !expects.MatchString(lines[at]) {
		at++
	}
	if at == len(lines) {
		return cut(strings.Join(lines, " ") + waited)
	}
	said := expectation(lines[at], lines[at+1:])
	if own := strings.Join(lines[:at], " "); strings.TrimSpace(own) != "" {
		said = own + ": " + said
	}
	return cut(said + waited)
}

// expectation tells what was expected from the lines below the one that begins it. Those that are not
// indented are the matcher's words, such as "to equal"; the indented ones above and below are values.
func expectation(begin string, lines []string) string {
	parts := []string{"expected"}
	var value []string
	flush := func() {
		if len(value) > 0 {
			parts = append(parts, short(value))
		}
		value = nil
	}
	for _, l := range lines {
		if strings.HasPrefix(l, "    ") || strings.TrimSpace(l) == "" {
			value = append(value, l)
			continue
		}
		flush()
		parts = append(parts, strings.TrimSpace(l))
	}
	flush()
	if begin != "Expected" { // an error: its own words say it all
		return strings.TrimSuffix(strings.Join(parts[1:min(2, len(parts))], ""), ":")
	}
	return strings.Join(parts, " ")
}

// short renders a dumped value: itself when it is short, an error's text, or how many elements it has.
func short(lines []string) string {
	m := typed.FindStringSubmatch(lines[0])
	if m == nil {
		return clip(strings.Join(strings.Fields(strings.Join(lines, " ")), " "))
	}
	if strings.Contains(strings.ToLower(m[1]), "err") { // the text, before the fields of the error in braces
		for _, l := range append([]string{m[3]}, lines[1:]...) {
			if l = strings.TrimSpace(l); l != "" {
				return l
			}
		}
	}
	whole := strings.Join(strings.Fields(m[3]+" "+strings.Join(lines[1:], " ")), " ")
	n := m[2]
	if len([]rune(whole)) > maxValue && n != "" {
		return n + " values"
	}
	return clip(whole)
}

func clip(value string) string {
	if r := []rune(value); len(r) > maxValue {
		return string(r[:maxValue]) + "…"
	}
	return value
}

// cut joins the lines of a text and cuts what is too long for a line.
func cut(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > maxSentence {
		return string(r[:maxSentence]) + "…"
	}
	return text
}

// Plain takes the escapes of a terminal out of a text (ECMA-48, control sequences).
func Plain(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		end := strings.IndexFunc(after, func(r rune) bool { return r >= 0x40 && r <= 0x7e })
		text = after[end+1:]
	}
}
