// Package scenarios holds the specs: one file for each reported failure. Each builds a cluster, breaks it as
// the report says, and states what must hold.
package scenarios

import (
	"testing"

	"github.com/nemesh/nemesh/harness/suite"
)

// chaos is what the specs share.
var chaos = suite.New()

func TestMain(m *testing.M) { suite.Main(m) }

func TestScenarios(t *testing.T) { suite.Run(t, "scenarios") }
