package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/reports/record"
)

// maxAgents is how many further agents are named; of more, only the number is told.
const maxAgents = 3

// Agents says what was tested: the run's agent with its version, and which others scenarios brought, such as
// one with a historic defect. It is "" when the record does not say.
func Agents(o *record.Outcome) string {
	var main string
	if o.Run != nil {
		main = strings.TrimSpace(o.Run.Agent + " " + o.Run.AgentVersion)
	}
	var others []record.World
	plain := false // a scenario tested the run's agent as it is
	for _, s := range o.Scenarios {
		for _, w := range s.Worlds {
			known := func(other record.World) bool { return other.Agent == w.Agent }
			if o.Run != nil && w.Agent == o.Run.Agent {
				plain = true
			} else if w.Agent != "" && !slices.ContainsFunc(others, known) {
				others = append(others, w)
			}
		}
	}
	var names []string
	for _, w := range others {
		names = append(names, w.Agent)
	}
	switch {
	case len(others) == 0:
		return main
	case len(others) == 1 && !plain && main != "" && others[0].Driver == o.Run.Agent:
		return main + " with " + strings.Join(others[0].Defects, " and ")
	case len(others) > maxAgents:
		names = []string{fmt.Sprintf("%d others, such as %s", len(others), names[0])}
	}
	if main == "" {
		return strings.Join(names, ", ")
	}
	return main + "; in some scenarios " + strings.Join(names, ", ")
}
