package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Go ends a program that panics with 2. The unit must not take that for a wrong command line.
func TestTheUnitRestartsAfterAPanic(t *testing.T) {
	const panicked = 2
	unit, err := os.ReadFile("../../overlayd.service")
	if err != nil {
		t.Fatal(err)
	}
	if exitUsage == panicked ||
		!strings.Contains(string(unit), fmt.Sprintf("RestartPreventExitStatus=%d\n", exitUsage)) {
		t.Errorf("the code of a wrong command line is %d; the unit:\n%s", exitUsage, unit)
	}
}
