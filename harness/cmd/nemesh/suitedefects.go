package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/nemesh/nemesh/harness/compare"
)

// redUnder lists the defects that scenarios of a user's suite are labelled with.
func (s *suiteFlag) redUnder(all []compare.Scenario) ([]string, error) {
	var names []string
	for _, one := range all {
		names = append(names, one.Red...)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no scenario of %s says under which defect it must fail: give one the label "+
			"suite.Red(NAME), with a name of nemesh list defects", s.dir)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// symptoms reads those that a user's suite gives to defects itself; none where it has no such file.
func (s *suiteFlag) symptoms() ([]compare.Defect, error) {
	if s.dir == "" {
		return nil, nil
	}
	path := filepath.Join(s.dir, "defects.yaml")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the symptoms: %w", err)
	}
	own, err := compare.ParseDefects(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return own, nil
}
