package matrix

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Binary is one version of an agent.
type Binary struct{ Path string }

// Name is the name of its file.
func (b Binary) Name() string { return filepath.Base(b.Path) }

// version is what follows the last thing that looks like one in a file name: flanneld-v0.9.1,
// overlayd_1.2.0-rc1.
var version = regexp.MustCompile(`v?(\d+(?:\.\d+)+)(-[0-9A-Za-z.]+)?`)

// Order sorts binaries by the version in their names, a pre-release before its release. It refuses names
// without.
func Order(paths []string) ([]Binary, error) {
	var all []Binary
	for _, p := range paths {
		if !version.MatchString(filepath.Base(p)) {
			return nil, fmt.Errorf(
				"%s has no version in its name, such as flanneld-v0.28.9: rename it or put it elsewhere",
				p,
			)
		}
		all = append(all, Binary{Path: p})
	}
	slices.SortFunc(
		all,
		func(a, b Binary) int { return cmp.Or(compareVersions(a.Name(), b.Name()), cmp.Compare(a.Path, b.Path)) },
	)
	return all, nil
}

func compareVersions(a, b string) int {
	x, y := version.FindStringSubmatch(a), version.FindStringSubmatch(b)
	xs, ys := strings.Split(x[1], "."), strings.Split(y[1], ".")
	for i := range max(len(xs), len(ys)) {
		if c := cmp.Compare(number(xs, i), number(ys, i)); c != 0 {
			return c
		}
	}
	switch {
	case x[2] == y[2]:
		return 0
	case x[2] == "":
		return 1
	case y[2] == "":
		return -1
	}
	return cmp.Compare(x[2], y[2])
}

func number(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	n, err := strconv.Atoi(parts[i])
	if err != nil {
		return 0 // too long for a version
	}
	return n
}

// Find returns the index of a binary that the user names: its path, its file's name, or its version.
func Find(all []Binary, name string) (int, error) {
	for i, b := range all {
		v := version.FindString(b.Name())
		if name == b.Path || name == b.Name() || name == v || "v"+name == v || name == "v"+v {
			return i, nil
		}
	}
	var names []string
	for _, b := range all {
		names = append(names, b.Name())
	}
	return 0, fmt.Errorf("there is no %q among the agents: there are %s", name, strings.Join(names, ", "))
}

// Answer is what a run says of one binary.
type Answer int

// Answers.
const (
	Unknown Answer = iota // not proven, skipped: it says nothing
	Good
	Bad
)

// Bisect finds the first binary in version order at which the verdict changes, between one that is known to
// be good and one that is known to be bad, whichever is the older. It asks as few as a binary search does;
// one that gives no answer is passed over, and all that stand between the neighbours of a change come back
// as candidates: one where every answer was clear.
func Bisect(
	ctx context.Context,
	all []Binary,
	good, bad int,
	ask func(context.Context, Binary) (Answer, error),
) (candidates []Binary, err error) {
	if good == bad {
		return nil, fmt.Errorf("%s is both good and bad", all[good].Name())
	}
	unknown := map[int]bool{}
	for {
		next, ok := between(good, bad, unknown)
		if !ok {
			break
		}
		answer, err := ask(ctx, all[next])
		if err != nil {
			return nil, err
		}
		switch answer {
		case Good:
			good = next
		case Bad:
			bad = next
		default:
			unknown[next] = true
		}
	}
	return all[min(good, bad)+1 : max(good, bad)+1], nil
}

// between finds the index nearest to the middle that has not been asked in vain.
func between(good, bad int, unknown map[int]bool) (int, bool) {
	low, high := min(good, bad), max(good, bad)
	middle := (low + high) / 2
	for away := 0; away < high-low; away++ {
		for _, i := range []int{middle - away, middle + away} {
			if i > low && i < high && !unknown[i] {
				return i, true
			}
		}
	}
	return 0, false
}
