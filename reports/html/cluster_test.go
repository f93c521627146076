package html

import (
	"slices"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
)

// A neighbour that works is the same line in each of its states; one that fails or is gone differs.
func TestMomentsOfNeighbours(t *testing.T) {
	at := func(lines ...string) record.Timed[[]record.State] {
		return record.Timed[[]record.State]{
			Of: []record.State{{Where: "node01", What: "neighbours", Lines: lines}},
		}
	}
	_, states := moments(&record.Cluster{Moments: []record.Timed[[]record.State]{
		at(
			"10.0.0.2 dev eth0 lladdr a REACHABLE",
			"10.0.0.3 dev eth0 lladdr b STALE",
			"10.0.0.4 dev x lladdr c PERMANENT",
		),
		at("10.0.0.2 dev eth0 lladdr a DELAY", "10.0.0.3 dev eth0 lladdr none FAILED"),
		at("10.0.0.2 dev eth0 lladdr a REACHABLE", "10.0.0.3 dev eth0 lladdr d PROBE"),
	}})
	want := []lineData{
		{"10.0.0.2 dev eth0 lladdr a REACHABLE or DELAY", 0b111},
		{"10.0.0.3 dev eth0 lladdr b STALE", 0b001},
		{"10.0.0.3 dev eth0 lladdr d PROBE", 0b100},
		{"10.0.0.3 dev eth0 lladdr none FAILED", 0b010},
		{"10.0.0.4 dev x lladdr c PERMANENT", 0b001},
	}
	if len(states) != 1 || !slices.Equal(states[0].Lines, want) {
		t.Errorf("%+v, want %+v", states, want)
	}
}
