package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

// TestFiltersAreWhatGinkgoTakes asks Ginkgo's own parser what the label filters choose.
func TestFiltersAreWhatGinkgoTakes(t *testing.T) {
	scenarios := map[string][]string{
		"a": {"issue:flannel-1", "kind:lease"}, "b": {"kind:lease-more"}, "c": {"Issue:flannel-2"},
		"d": {"fault:etcd-stop"}, "e": {"not-an-issue:x"},
	}
	for _, c := range []struct {
		filters []string
		want    string
	}{
		{[]string{"issue:"}, "ac"},
		{[]string{"kind:lease"}, "a"},
		{[]string{"kind:"}, "ab"},
		{[]string{"issue:", "fault:etcd-stop"}, "acd"},
		{[]string{"ISSUE:flannel-1"}, "a"},
		{[]string{"nothing:"}, ""},
	} {
		args, err := parseFilters(c.filters)
		if err != nil || len(args) != 1 {
			t.Errorf("%q: %q, %v", c.filters, args, err)
			continue
		}
		filter, err := types.ParseLabelFilter(strings.TrimPrefix(args[0], "--label-filter="))
		if err != nil {
			t.Errorf("%q: Ginkgo does not take %s: %v", c.filters, args[0], err)
			continue
		}
		got := ""
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if filter(scenarios[name]) {
				got += name
			}
		}
		if got != c.want {
			t.Errorf("%q chooses %q, want %q", c.filters, got, c.want)
		}
	}
}

func TestFiltersOverNames(t *testing.T) {
	args, err := parseFilters([]string{"etcd (stopped|killed)", "kind:lease", "a && b"})
	want := []string{"--focus=etcd (stopped|killed)", "--focus=a && b", "--label-filter=(kind:lease)"}
	if err != nil || !slices.Equal(args, want) {
		t.Errorf("%q, %v", args, err)
	}
	if args, err := parseFilters(nil); err != nil || len(args) != 0 {
		t.Errorf("%q, %v", args, err)
	}
}

func TestFiltersThatAreWrong(t *testing.T) {
	for _, f := range []string{
		":", ":lease", "kind:a b", "kind:a && kind:b", "!kind:a", "(kind:a)", "kind:(a)", "kind:{a,b}", "kind:a,b",
		"kind:/a", "kind: lease", "kind:a|b", "kind:a\n",
	} {
		if _, err := parseFilters([]string{f}); err == nil || !strings.Contains(err.Error(), "no label") {
			t.Errorf("%q was taken: %v", f, err)
		}
	}
	if _, err := parseFilters([]string{"lease", ""}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty one was taken: %v", err)
	}
	_, err := parseFilters([]string{"("})
	if err == nil || !strings.Contains(err.Error(), "no regular expression") {
		t.Error(err)
	}
	o := runOptions{bin: t.TempDir(), filters: []string{"kind:a b"}}
	_, err = o.scenarios(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no label") {
		t.Errorf("listing, as matrix and bisect do: %v", err)
	}
}
