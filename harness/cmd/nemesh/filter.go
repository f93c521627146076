package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// label is what a filter with a colon must be: more has a meaning of its own for Ginkgo, as brackets, commas
// and && have, or is a mistake.
var label = regexp.MustCompile(`^[\w.-]+:[\w.:-]*$`)

// parseFilters turns filters into Ginkgo's arguments. One with a colon is a label, or any label of its kind
// if it ends in the colon; any other is a regular expression over names. One that is neither is an error
// here, since Ginkgo's would come later and be about what nobody has typed.
func parseFilters(filters []string) ([]string, error) {
	var args, labels []string
	for _, f := range filters {
		if strings.TrimSpace(f) == "" {
			return nil, errors.New("a filter is empty, as of a variable that is not set: leave it out to run all")
		}
		if !strings.Contains(f, ":") {
			if _, err := regexp.Compile(f); err != nil {
				return nil, fmt.Errorf("filter %q is no regular expression: %w", f, err)
			}
			args = append(args, "--focus="+f)
			continue
		}
		switch {
		case !label.MatchString(f):
			return nil, fmt.Errorf("filter %q has a colon, so it is taken for a label, and no label "+
				"looks like this: a label is as kind:lease, or kind: for any of its kind; in an expression "+
				"over names put a dot for the colon; nemesh list shows both", f)
		case strings.HasSuffix(f, ":"):
			// Ginkgo looks for a label as a whole in any case, and for an expression in the case that it has.
			labels = append(labels, "/(?i)^"+regexp.QuoteMeta(f)+"/")
		default:
			labels = append(labels, "("+f+")")
		}
	}
	if len(labels) > 0 {
		args = append(args, "--label-filter="+strings.Join(labels, " || "))
	}
	return args, nil
}
