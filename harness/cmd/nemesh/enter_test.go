package main

import (
	"slices"
	"testing"

	"github.com/nemesh/nemesh/harness/enter"
)

func TestNodesThatAreOffered(t *testing.T) {
	all := []enter.World{
		{ID: "1", Nodes: []string{"node02", "node01", "etcd"}},
		{ID: "2", Nodes: []string{"node01"}},
	}
	for id, want := range map[string][]string{
		"":  {"etcd", "node01", "node02"},
		"2": {"node01"},
		"3": nil,
	} {
		if got := nodesOf(all, id); !slices.Equal(got, want) {
			t.Errorf("world %q: %q, want %q", id, got, want)
		}
	}
}
