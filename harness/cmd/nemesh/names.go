package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// spec is a scenario that can be run.
type spec struct {
	Name   string
	Labels []string
}

// names lists the scenarios that the filters choose, without running any.
func (o *runOptions) names(ctx context.Context, dir string) ([]string, error) {
	specs, err := o.specs(ctx, dir)
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	return names, err
}

// specs lists the scenarios that the filters choose, with their labels, without running any.
func (o *runOptions) specs(ctx context.Context, dir string) ([]spec, error) {
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
			ContainerHierarchyLabels   [][]string
			LeafNodeText, LeafNodeType string
			LeafNodeLabels             []string
			State                      string
		}
	}
	if err := json.Unmarshal(raw, &reports); err != nil {
		return nil, err
	}
	var found []spec
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType == "It" && s.State != "skipped" {
				found = append(found, spec{
					Name:   strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "),
					Labels: slices.Concat(append(s.ContainerHierarchyLabels, s.LeafNodeLabels)...),
				})
			}
		}
	}
	return found, nil
}
