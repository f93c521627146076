package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nemesh/nemesh/harness/build"
)

// scenario is one that can be run, with the labels by which filters choose.
type scenario struct {
	Name   string   `json:"name"`
	Labels []string `json:"labels"`
}

// names lists the scenarios that the filters choose, without running any.
func (o *runOptions) names(ctx context.Context) ([]string, error) {
	all, err := o.scenarios(ctx)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, err
}

// scenarios is names with the labels of each.
func (o *runOptions) scenarios(ctx context.Context) ([]scenario, error) {
	dir, err := os.MkdirTemp("", "nemesh-names-")
	if err != nil {
		return nil, fmt.Errorf("list the scenarios: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all := runOptions{bin: o.bin, procs: 1, timeout: time.Minute, filters: o.filters, suite: o.suite}
	file := filepath.Join(dir, "names.json")
	// Without --output-dir Ginkgo takes even an absolute path for one below the suite's folder.
	cmd, err := all.ginkgo(ctx, "--dry-run", "--json-report="+filepath.Base(file), "--output-dir="+dir)
	if err != nil {
		return nil, err
	}
	// A suite that is started outside the sandbox would build the binaries otherwise.
	cmd.Env = append(append(os.Environ(), build.Env+"="+o.bin), o.suite.env()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("list the scenarios: %w\n%s", err, out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("list the scenarios: %w", err)
	}
	return parseScenarios(raw)
}

// parseScenarios reads Ginkgo's JSON report of a dry run.
func parseScenarios(raw []byte) ([]scenario, error) {
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			ContainerHierarchyLabels   [][]string
			LeafNodeText, LeafNodeType string
			LeafNodeLabels             []string
			State                      string
		}
	}
	if err := json.Unmarshal(raw, &reports); err != nil {
		return nil, fmt.Errorf("read Ginkgo's list of scenarios: %w", err)
	}
	var found []scenario
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType != "It" || s.State == "skipped" {
				continue
			}
			labels := slices.Concat(append(s.ContainerHierarchyLabels, s.LeafNodeLabels)...)
			slices.Sort(labels)
			found = append(found, scenario{
				Name:   strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "),
				Labels: slices.Compact(labels),
			})
		}
	}
	// Ginkgo shuffles them.
	slices.SortFunc(found, func(a, b scenario) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}
