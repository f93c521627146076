// Package suite is what a scenario is written in: worlds that belong to a spec, faults whose missing proof
// makes a spec not proven, a mesh that talks all the time, what must hold, and a verdict in the record for
// each spec. A scenario is a Ginkgo spec; it needs Ginkgo, Gomega and this package.
//
//	var chaos = suite.New()
//
//	func TestMain(m *testing.M)      { suite.Main(m) }
//	func TestScenarios(t *testing.T) { suite.Run(t, "scenarios") }
//
//	var _ = Describe("my report", func() {
//		It("loses nothing while etcd is away", func(ctx SpecContext) {
//			c := chaos.Running(ctx, suite.Options{})
//			c.Inject(ctx, suite.EtcdStop{}, suite.AgentKill{Node: "node02"})
//			c.TalkFor(ctx, 50)
//			c.Heal(ctx)
//			c.ExpectFreshPods(ctx, "fresh")
//			c.ExpectNothingLost(ctx)
//		}, SpecTimeout(time.Minute))
//	})
//
// It runs in the sandbox, as root or not: `go test` and `nemesh run` see to that.
package suite

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/sandbox"
)

// Long is for specs that take long: they start first, so that in the end no processor waits for one.
const Long = ginkgo.SpecPriority(1)

// Main is the TestMain of a suite: it builds the programs that a world needs, enters the sandbox and runs
// the specs there. It does not return.
func Main(m *testing.M) {
	sandbox.DispatchPart()
	if os.Getenv(AskEnv) != "" {
		orExit(answer(context.Background(), os.Stdout))
		os.Exit(0)
	}
	if !sandbox.Inside() {
		_, err := build.Bin()
		orExit(err)
	}
	sandbox.Enter()
	if dir := os.Getenv(DirEnv); dir != "" {
		orExit(os.Chdir(dir))
	}
	os.Exit(m.Run())
}

// orExit ends a suite that cannot run.
func orExit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesh:", err)
		os.Exit(2)
	}
}

// Run runs the specs of a suite.
func Run(t *testing.T, name string) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(5 * time.Second)
	if config, _ := ginkgo.GinkgoConfiguration(); config.ParallelTotal > runtime.NumCPU() {
		runtime.GOMAXPROCS(1) // each has less than a processor, and threads that look for work take from it
	}
	gomega.EnforceDefaultTimeoutsWhenUsingContexts() // an expectation fails long before its spec does
	ginkgo.RunSpecs(t, name)
}
