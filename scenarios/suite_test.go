// Package scenarios holds the specs: one file for each reported failure. Each builds a cluster, breaks it as
// the report says, and states what must hold.
package scenarios

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/suite"
)

// chaos is what the specs share.
var chaos = suite.New()

func TestMain(m *testing.M) {
	if !sandbox.Inside() {
		if _, err := build.Bin(); err != nil {
			fmt.Fprintln(os.Stderr, "nemesh:", err)
			os.Exit(2)
		}
	}
	sandbox.Enter()
	os.Exit(m.Run())
}

func TestScenarios(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "scenarios")
}

// ours is the overlay of this repository, without or with defects.
func ours(defects ...string) driver.Driver {
	if d := os.Getenv(suite.DefectEnv); d != "" && len(defects) == 0 {
		defects = []string{d}
	}
	return driver.Ours{Bin: os.Getenv(build.Env), Defects: defects}
}
