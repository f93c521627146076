package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/reports/junit"
	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
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

// writeReports renders the reports into the folder of a run and makes that the latest. It returns where a
// person should look.
func writeReports(o *record.Outcome, dir, reports string) (string, error) {
	xml, err := junit.Render(o)
	if err != nil {
		return "", err
	}
	markdown := []byte(text.Markdown(o))
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "junit.xml"), xml, 0o644),
		os.WriteFile(filepath.Join(dir, "summary.md"), markdown, 0o644),
		appendStepSummary(markdown),
		pointLatest(dir, reports),
	)
	if err != nil {
		return "", fmt.Errorf("write the reports: %w", err)
	}
	return filepath.Join(reports, "latest", "summary.md"), nil
}

// appendStepSummary adds to the summary of a GitHub Actions step, where there is one.
func appendStepSummary(markdown []byte) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(markdown)
	return errors.Join(err, f.Close())
}

// pointLatest replaces the link to the latest run in one step.
func pointLatest(dir, reports string) error {
	temp := filepath.Join(reports, ".latest-"+filepath.Base(dir))
	if err := os.Symlink(filepath.Join("runs", filepath.Base(dir)), temp); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(reports, "latest"))
}

// names lists the scenarios that the filters choose, without running any.
func (o *runOptions) names(ctx context.Context, dir string) ([]string, error) {
	all := runOptions{bin: o.bin, procs: 1, timeout: o.timeout, filters: o.filters}
	file := filepath.Join(dir, "names.json")
	cmd := all.ginkgo(ctx, "--dry-run", "--json-report="+file)
	cmd.Env = append(os.Environ(), binEnv(o.bin))
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
			State                      string
		}
	}
	if err := json.Unmarshal(raw, &reports); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType == "It" && s.State != "skipped" {
				names = append(names, strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "))
			}
		}
	}
	return names, nil
}
