// Package scenarios holds the specs: one file for each reported failure. Each builds a cluster, breaks it as
// the report says, and states what must hold.
package scenarios

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness"
	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/suite"
)

// chaos is what the specs share.
var chaos = suite.New()

// long is for specs that take long: they start first, so that in the end no processor waits for one.
const long = SpecPriority(1)

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
	SetDefaultEventuallyTimeout(5 * time.Second)
	if config, _ := GinkgoConfiguration(); config.ParallelTotal > runtime.NumCPU() {
		runtime.GOMAXPROCS(1) // each has less than a processor, and threads that look for work take from it
	}
	EnforceDefaultTimeoutsWhenUsingContexts() // an expectation fails long before its spec does
	RunSpecs(t, "scenarios")
}

// ours is the overlay under test: this repository's, unless NEMESH_AGENT names another. With defects it is
// always this repository's, in the build that has them.
func ours(defects ...string) driver.Driver {
	GinkgoHelper()
	bin := os.Getenv(build.Env)
	if d := os.Getenv(suite.DefectEnv); d != "" && len(defects) == 0 {
		defects = []string{d}
	}
	if len(defects) > 0 {
		return driver.Ours{Bin: bin, Defects: defects}
	}
	d, err := driver.Open(driver.FromEnv(), bin)
	Expect(err).NotTo(HaveOccurred())
	return d
}

// withDefect is the agent under test where it is of a version that has the historic defect for real, and
// this repository's with the defect otherwise.
func withDefect(name string) driver.Driver {
	GinkgoHelper()
	if d := ours(); driver.HasDefect(d, name) {
		return d
	}
	return ours(name)
}

// isOurs tells whether the overlay under test is this repository's, whose words can be expected.
func isOurs() bool {
	_, own := ours().(driver.Ours)
	return own
}

// needs skips the running spec, with one line, where the agent under test lacks something that it is about.
func needs(features ...driver.Feature) {
	GinkgoHelper()
	if err := driver.Lacks(ours(), features...); err != nil {
		Skip(err.Error())
	}
}

// needsDevice skips the running spec where the backend has no VXLAN device to look at.
func needsDevice(c *harness.Cluster) {
	GinkgoHelper()
	if backend := c.Options().Backend; backend != harness.BackendVXLAN {
		Skip("it looks at the VXLAN device, which the backend " + backend + " has not")
	}
}
