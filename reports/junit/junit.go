// Package junit renders a record as JUnit XML, the form that GitHub's viewers, GitLab and Jenkins read
// (the schema of Jenkins' JUnit plugin).
package junit

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

type suites struct {
	XMLName xml.Name `xml:"testsuites"`
	Suites  []suite  `xml:"testsuite"`
}

type suite struct {
	Name      string  `xml:"name,attr"`
	Tests     int     `xml:"tests,attr"`
	Failures  int     `xml:"failures,attr"`
	Errors    int     `xml:"errors,attr"`
	Skipped   int     `xml:"skipped,attr"`
	Time      string  `xml:"time,attr"`
	Timestamp string  `xml:"timestamp,attr,omitempty"`
	Cases     []cases `xml:"testcase"`
}

type cases struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Time    string   `xml:"time,attr"`
	Failure *problem `xml:"failure,omitempty"`
	Error   *problem `xml:"error,omitempty"`
	Skipped *problem `xml:"skipped,omitempty"`
	Output  string   `xml:"system-out,omitempty"`
}

type problem struct {
	Message string `xml:"message,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// Render returns the XML of a run. A failed scenario is a failure; one that is not proven or did not end is
// an error.
func Render(o *record.Outcome) ([]byte, error) {
	s := suite{Name: "nemesh", Tests: len(o.Scenarios), Time: seconds(int64(o.Duration()))}
	if o.Run != nil {
		s.Timestamp = o.Run.Started.UTC().Format("2006-01-02T15:04:05")
	}
	for _, sc := range o.Scenarios {
		s.Cases = append(s.Cases, testCase(sc, &s))
	}
	raw, err := xml.MarshalIndent(suites{Suites: []suite{s}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render JUnit: %w", err)
	}
	return append([]byte(xml.Header), append(raw, '\n')...), nil
}

func testCase(sc *record.Scenario, s *suite) cases {
	class, _, _ := strings.Cut(sc.Name, " ")
	c := cases{Class: class, Name: clean(sc.Name)}
	if sc.Verdict == nil {
		s.Errors++
		c.Error = &problem{Message: "the scenario did not end"}
		return c
	}
	v := sc.Verdict
	c.Time, c.Output = seconds(int64(v.Took())), clean(text.Felt(v))
	p := &problem{Message: clean(sc.Sentence())}
	if v.State != record.Passed {
		p.Text = clean(record.Plain(text.Style{}.Failure(sc)))
	}
	switch v.State {
	case record.Failed:
		s.Failures++
		c.Failure = p
	case record.Unproven:
		s.Errors++
		c.Error = p
	case record.Skipped:
		s.Skipped++
		c.Skipped = &problem{Message: p.Message}
	}
	return c
}

func seconds(nanoseconds int64) string {
	return fmt.Sprintf("%.3f", time.Duration(nanoseconds).Seconds())
}

// clean takes out what XML 1.0 cannot hold, such as the escape of a colour.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || (r >= 0x20 && r != 0xfffe && r != 0xffff) {
			return r
		}
		return -1
	}, text)
}
