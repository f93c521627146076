package html

import (
	"slices"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
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

// clusterOf is the data of the last cluster of a record of fixtures/records.
func clusterOf(t *testing.T, name string) clusterData {
	t.Helper()
	o, err := record.Load("../../fixtures/records/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return newBuilder(o).cluster(o.Clusters[len(o.Clusters)-1])
}

// A fault has a lane by what it is and not by its name, and says its component and promise.
func TestFaultsSayWhatTheyAre(t *testing.T) {
	type seen struct {
		id, component string
		lane          int
		once          bool
	}
	var got []seen
	d := clusterOf(t, "faults.jsonl")
	for _, f := range d.Faults {
		got = append(got, seen{f.ID, f.Component, f.Lane, f.Once})
	}
	want := []seen{
		{"etcd-pause", "etcd", 0, false},
		{"agent-restart", "agent", 1, false},
		{"agent-restart", "agent", 1, false},
		{record.FaultCustom, "kernel", 3, false},
		{record.FaultCustom, "kernel", 4, false},
		{"packet-loss", "node", 5, true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	f := d.Faults[5]
	if f.Promised == "" || f.Params["share"] != "20" || !slices.Equal(f.Nodes, []string{"node01"}) {
		t.Errorf("%+v", f)
	}
	var roles []string
	for _, n := range d.Nodes {
		roles = append(roles, n.Role)
	}
	if !slices.Equal(roles, []string{"etcd", "etcd", "etcd", "node", "node"}) {
		t.Errorf("%q", roles)
	}
}

func TestFaultsOfAnOldRecord(t *testing.T) {
	d := clusterOf(t, "three.jsonl")
	if len(d.Faults) != 2 || len(d.Nodes) != 3 {
		t.Fatalf("%+v", d)
	}
	for i, f := range d.Faults {
		silent := f.ID == "" && f.Component == text.NotRecorded && f.Promised == text.NotRecorded
		if !silent || f.Lane != i || f.Once {
			t.Errorf("%+v", f)
		}
	}
}
