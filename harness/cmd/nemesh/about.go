package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/reports/record"
)

// about describes this run.
func about(seed int64) *record.Run {
	r := &record.Run{
		Version: record.Version, Started: time.Now(), Command: append([]string{"nemesh"}, os.Args[1:]...),
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Root: startedByRoot(), Module: "unknown", Seed: seed,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		r.Module = info.Main.Version
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return r
}

// startedByRoot tells whether the sandbox was entered as root: then no user namespace was made, and its
// users are the machine's.
func startedByRoot() bool {
	raw, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(raw))
	return err == nil && len(fields) == 3 && fields[2] == "4294967295"
}

// pointLatest replaces the link to the latest run in one step.
func pointLatest(dir, reports string) error {
	temp := filepath.Join(reports, ".latest-"+filepath.Base(dir))
	if err := os.Symlink(filepath.Join("runs", filepath.Base(dir)), temp); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(reports, "latest"))
}

// names lists the scenarios of the suite, without running any.
func (o *runOptions) names(ctx context.Context, dir string) ([]string, error) {
	all := runOptions{bin: o.bin, procs: 1, timeout: o.timeout}
	file := filepath.Join(dir, "names.json")
	cmd := all.ginkgo(ctx, "--dry-run", "--json-report="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	defer os.Remove(file)
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeText, LeafNodeType string
		}
	}
	if err := json.Unmarshal(raw, &reports); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType == "It" {
				names = append(names, strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "))
			}
		}
	}
	return names, nil
}
