package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
