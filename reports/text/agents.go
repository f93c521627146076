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
	var others []string
	plain := false // a scenario tested the run's agent as it is
	for _, s := range o.Scenarios {
		for _, w := range s.Worlds {
			if o.Run != nil && w.Agent == o.Run.Agent {
				plain = true
			} else if w.Agent != "" && !slices.Contains(others, w.Agent) {
				others = append(others, w.Agent)
			}
		}
	}
	switch {
	case len(others) == 0:
		return main
	case len(others) == 1 && !plain && main != "" && strings.HasPrefix(others[0], o.Run.Agent+" with "):
		return main + strings.TrimPrefix(others[0], o.Run.Agent)
	case len(others) > maxAgents:
		others = []string{fmt.Sprintf("%d others, such as %s", len(others), others[0])}
	}
	if main == "" {
		return strings.Join(others, ", ")
	}
	return main + "; in some scenarios " + strings.Join(others, ", ")
}
