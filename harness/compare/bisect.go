package compare

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nemesh/nemesh/reports/record"
)

// version is what follows the last thing that looks like one in a file name: flanneld-v0.9.1,
// overlayd_1.2.0-rc1.
var version = regexp.MustCompile(`v?(\d+(?:\.\d+)+)(-[0-9A-Za-z.]+)?`)

// Versions lists the executables in a folder, each one version of an agent, in the order of the versions in
// their names, a pre-release before its release. It refuses names without a version, and fewer than two.
func Versions(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if !version.MatchString(e.Name()) {
			return nil, fmt.Errorf("%s has no version in its name, such as flanneld-v0.28.9: rename it or put it "+
				"elsewhere", path)
		}
		all = append(all, path)
	}
	if len(all) < 2 {
		return nil, fmt.Errorf("%s has %d executables: two are needed at least", dir, len(all))
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(compareVersions(filepath.Base(a), filepath.Base(b)), cmp.Compare(a, b))
	})
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

// FindVersion returns the index of a binary that the user names: its path, its file's name, or its version.
func FindVersion(all []string, name string) (int, error) {
	var names []string
	for i, path := range all {
		file := filepath.Base(path)
		v := version.FindString(file)
		if name == path || name == file || name == v || "v"+name == v || name == "v"+v {
			return i, nil
		}
		names = append(names, file)
	}
	return 0, fmt.Errorf("there is no %q among the agents: there are %s", name, strings.Join(names, ", "))
}

// Bisect finds the first binary in version order at which the verdict changes, between one that is known to
// be good and one that is known to be bad, whichever is the older. It asks as few as a binary search does.
// One under which the scenario neither passed nor failed is passed over, and all that stand between the
// neighbours of a change come back as candidates: one where every answer was clear.
func Bisect(all []string, good, bad int, ask func(string) (Result, error)) (candidates []string, err error) {
	if good == bad {
		return nil, fmt.Errorf("%s is both good and bad", filepath.Base(all[good]))
	}
	unknown := map[int]bool{}
	for {
		next, ok := between(good, bad, unknown)
		if !ok {
			return all[min(good, bad)+1 : max(good, bad)+1], nil
		}
		answer, err := ask(all[next])
		if err != nil {
			return nil, err
		}
		switch answer.State {
		case record.Passed:
			good = next
		case record.Failed:
			bad = next
		default:
			unknown[next] = true
		}
	}
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
