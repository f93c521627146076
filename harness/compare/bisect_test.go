package compare_test

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/reports/record"
)

// folder makes a folder of executables, and of what is none.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "README"), nil, 0o644),
		os.Mkdir(filepath.Join(dir, "sources"), 0o755))
	for _, name := range names {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVersionsInOrder(t *testing.T) {
	want := []string{
		"flanneld-0.9", "flanneld-v0.9.1", "flanneld-v0.10.0-rc1", "flanneld-v0.10.0",
		"flanneld-v0.28.9",
	}
	dir := folder(t, want...)
	all, err := compare.Versions(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range all {
		names = append(names, filepath.Base(path))
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	for _, name := range []string{"0.9.1", "v0.9.1", "flanneld-v0.9.1", filepath.Join(dir, "flanneld-v0.9.1")} {
		if i, err := compare.FindVersion(all, name); i != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, i, err)
		}
	}
	_, err = compare.FindVersion(all, "7.7")
	if err == nil || !strings.Contains(err.Error(), "flanneld-v0.10.0-rc1") {
		t.Errorf("what there is is not told: %v", err)
	}
	for want, dir := range map[string]string{
		"no version":           folder(t, "flanneld", "flanneld-0.9"),
		"1 executables: two":   folder(t, "flanneld-0.9"),
		"no such file or dire": "/nowhere",
	} {
		if _, err := compare.Versions(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

// versions are paths of binaries, from the oldest to the newest.
func versions(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("/x/agent-v0.%d", i))
	}
	return all
}

func ended(state string) compare.Result { return compare.Result{Verdict: record.Verdict{State: state}} }

func TestBisectAsksLittle(t *testing.T) {
	const n = 40
	all := versions(n)
	for change := 1; change < n; change++ {
		for _, fixed := range []bool{true, false} { // whether the change made it good or bad
			asked := 0
			ask := func(agent string) (compare.Result, error) {
				asked++
				if (slices.Index(all, agent) >= change) == fixed {
					return ended(record.Passed), nil
				}
				return ended(record.Failed), nil
			}
			good, bad := 0, n-1
			if fixed {
				good, bad = n-1, 0
			}
			got, err := compare.Bisect(all, good, bad, ask)
			if err != nil || len(got) != 1 || got[0] != all[change] {
				t.Fatalf("change at %d: %v, %v", change, got, err)
			}
			if asked > bits.Len(n-1) {
				t.Errorf("change at %d: %d runs", change, asked)
			}
		}
	}
}

func TestBisectPassesOverWhatGivesNoVerdict(t *testing.T) {
	all := versions(8)
	answers := []string{
		record.Failed, record.Failed, record.Failed, record.Unproven, "", record.Passed,
		record.Passed, record.Passed,
	}
	got, err := compare.Bisect(all, 7, 0, func(agent string) (compare.Result, error) {
		return ended(answers[slices.Index(all, agent)]), nil
	})
	if err != nil || !slices.Equal(got, all[3:6]) {
		t.Errorf("%v, %v: all that may have changed it", got, err)
	}
	if _, err := compare.Bisect(all, 3, 3, nil); err == nil {
		t.Error("one that is both good and bad is taken")
	}
	broken := errors.New("disk full")
	_, err = compare.Bisect(all, 7, 0, func(string) (compare.Result, error) { return compare.Result{}, broken })
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
