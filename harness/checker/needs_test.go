package checker

import (
	"context"
	"errors"
	"testing"

	"github.com/nemesh/nemesh/harness/cluster"
)

// What cannot be asked of an agent is neither passed nor failed, and the reason is told.
func TestWhatCannotBeAskedIsWaived(t *testing.T) {
	s := world()
	s.Leases = nil // which would violate one-lease-per-node
	s.Unasked = map[string]string{"one-lease-per-node": `x lacks "leases"`}
	for _, r := range Check(s, nil) {
		asked := r.ID != "one-lease-per-node"
		if r.Waived == asked || r.Failed() && !asked || !asked && (r.OK || r.Why != `x lacks "leases"`) {
			t.Errorf("%+v", r)
		}
	}
}

// A suite's own invariants are judged like the others: held, violated, waived, and not asked.
func TestLiveInvariants(t *testing.T) {
	found := func(wrong ...string) func(context.Context) ([]string, error) {
		return func(context.Context) ([]string, error) { return wrong, nil }
	}
	k := &Checker{
		c: &cluster.Cluster{}, waived: map[string]string{},
		live: []Live{
			{ID: "held", Look: found()},
			{ID: "violated", Look: found("x is wrong")},
			{ID: "meant", Look: found("y is wrong")},
			{ID: "unasked", Look: found("never looked at")},
		},
	}
	if err := k.Waive("meant", "it is meant to"); err != nil {
		t.Fatal(err)
	}
	results, err := k.look(t.Context(), Snapshot{Unasked: map[string]string{"unasked": "x lacks it"}})
	if err != nil || len(results) != 4 || !results[0].OK {
		t.Fatalf("%+v, %v", results, err)
	}
	if text := Failures(results); text != "violated: x is wrong" {
		t.Errorf("%q", text)
	}
	if r := results[3]; !r.Waived || r.OK || len(r.Violations) > 0 || r.Why != "x lacks it" {
		t.Errorf("%+v", r)
	}
	k.live = []Live{
		{ID: "blind", Look: func(context.Context) ([]string, error) { return nil, errors.New("dark") }},
	}
	if _, err := k.look(t.Context(), Snapshot{}); err == nil || err.Error() != "invariant blind: dark" {
		t.Errorf("%v", err)
	}
}
