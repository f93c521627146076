package record_test

import (
	"slices"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
)

// fixture puts a record of fixtures/records together.
func fixture(t *testing.T, name string) *record.Outcome {
	t.Helper()
	o, err := record.Load("../../fixtures/records/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Injections are paired by their numbers: faults that are called the same are not confused, nor is one that
// was injected twice.
func TestSpansOfNumberedInjections(t *testing.T) {
	o := fixture(t, "faults.jsonl")
	type span struct {
		n                        int
		node                     string
		injected, proved, healed int64
	}
	var got []span
	for _, s := range o.Clusters[0].Spans() {
		g := span{s.Of.N, "", s.Injected / 1e8, s.Proved / 1e8, s.Healed / 1e8}
		if len(s.Of.Nodes) > 0 {
			g.node = s.Of.Nodes[0]
		}
		got = append(got, g)
	}
	want := []span{
		{1, "", 130, 131, 0},
		{2, "node02", 140, 141, 150},
		{3, "node02", 142, 143, 150},
		{4, "node01", 151, 154, 0},
		{5, "node02", 152, 153, 155},
		{6, "node01", 156, 157, 0},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

// Without numbers a heal ends the fault of its name that was injected first.
func TestSpansOfAnOldRecord(t *testing.T) {
	o := &record.Outcome{}
	for i, phase := range []string{
		record.FaultInjecting, record.FaultProved, record.FaultInjecting, record.FaultUnproved, record.FaultHealed,
	} {
		o.Add(record.Event{
			At: int64(i + 1), Cluster: "1", Kind: record.KindFault,
			Fault: &record.Fault{Name: "rust", Phase: phase},
		})
	}
	spans := o.Clusters[0].Spans()
	if len(spans) != 2 || spans[0].Injected != 1 || spans[0].Proved != 2 || spans[0].Healed != 5 ||
		spans[1].Injected != 3 || spans[1].Error != record.FaultUnproved || spans[1].Healed != 0 {
		t.Errorf("%+v", spans)
	}
}

func TestSpanOfAVerdict(t *testing.T) {
	first := record.Span{Of: record.Fault{Name: "rust", N: 1}}
	old := record.Span{Of: record.Fault{Name: "rust"}}
	in := record.Injection{Cluster: "1", N: 1, Name: "rust"}
	other := record.Injection{Cluster: "1", N: 2, Name: "rust"}
	if !first.Is(in, "1") || first.Is(other, "1") || first.Is(in, "2") {
		t.Error("injections are confused")
	}
	if !old.Is(record.Injection{Name: "rust"}, "1") || old.Is(record.Injection{Name: "dust"}, "1") {
		t.Error("faults of an old record are confused")
	}
}

func TestMachinesHaveRoles(t *testing.T) {
	roles := func(o *record.Outcome) map[string]string {
		all := map[string]string{}
		for _, m := range o.Clusters[len(o.Clusters)-1].Machines() {
			all[m.Name] = m.Role
		}
		return all
	}
	if got := roles(fixture(t, "faults.jsonl")); len(got) != 5 || got["etcd2"] != record.RoleEtcd ||
		got["node02"] != record.RoleNode {
		t.Errorf("%v", got)
	}
	old := &record.Outcome{}
	old.Add(record.Event{
		Cluster: "1", Kind: record.KindProcess,
		Process: &record.Process{Machine: "store", Name: "etcd"},
	})
	old.Add(record.Event{
		Cluster: "1", Kind: record.KindWorld,
		World: &record.World{Nodes: map[string]string{"store": "10.0.0.1", "node01": "10.0.0.2"}},
	})
	if got := roles(old); len(got) != 2 || got["store"] != record.RoleEtcd || got["node01"] != record.RoleNode {
		t.Errorf("an old record: %v", got)
	}
}

func TestKindOfAnInjection(t *testing.T) {
	o := fixture(t, "faults.jsonl")
	o.Add(record.Event{Kind: record.KindFault, Fault: &record.Fault{
		ID: "toy-stop", Component: "toy",
		Promise: "it is missed",
	}})
	for _, c := range []struct {
		in   record.Injection
		want record.FaultKind
	}{
		{record.Injection{ID: "agent-restart", Name: "agent on node02 restarted"}, o.Catalogue[1]},
		{
			record.Injection{ID: "toy-stop", Name: "toy stopped", Component: "toy"},
			record.FaultKind{ID: "toy-stop", About: "toy stopped", Component: "toy", Promise: "it is missed"},
		},
		{
			record.Injection{ID: record.FaultCustom, Name: "rust", Component: "disk"},
			record.FaultKind{ID: record.FaultCustom, About: "rust", Component: "disk"},
		},
		{record.Injection{Name: "of an old record"}, record.FaultKind{About: "of an old record"}},
	} {
		if got := o.KindOf(c.in); got != c.want {
			t.Errorf("%+v is %+v", c.in, got)
		}
	}
	old := fixture(t, "three.jsonl").Scenarios[1].Verdict
	got := old.Injected()
	if len(got) != 2 || got[0] != (record.Injection{Name: "etcd stopped", Active: true}) || got[1].Active {
		t.Errorf("an old verdict: %+v", got)
	}
}
