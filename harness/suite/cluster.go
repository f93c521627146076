package suite

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/checker"
	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/recorder"
)

// Cluster is a world that belongs to a spec. What it has from the embedded cluster returns errors; the verbs
// of this package fail the spec.
type Cluster struct {
	*cluster.Cluster
	recorder recorder.Recorder
	checker  *checker.Checker
}

// Cluster builds a cluster for the running spec, or for its ordered container when called in BeforeAll, and
// tears it down afterwards. Without Options.Agent it has the overlay under test. When all that used it has
// passed, its faults are healed and the invariants are checked before. A world that cannot be built makes
// the spec not proven.
func (s *Suite) Cluster(ctx context.Context, opts Options) *Cluster {
	ginkgo.GinkgoHelper()
	if opts.Agent == nil {
		opts.Agent = UnderTest()
	}
	c := &Cluster{}
	var err error
	if c.checker, err = checker.New(registered.of(c)...); err != nil {
		notProven(err)
	}
	c.Cluster, err = cluster.New(ctx, opts.WithEnv(), s.record.For(ginkgo.CurrentSpecReport().FullText()),
		c.checker.Watch, c.recorder.Watch)
	if err != nil {
		notProven(errors.Join(err, c.checker.Left()))
	}
	s.mu.Lock()
	s.clusters = append(s.clusters, c)
	s.mu.Unlock()
	ginkgo.DeferCleanup(func() {
		s.mu.Lock()
		delete(s.failed, c)
		s.mu.Unlock()
		if err := c.checker.Close(); err != nil {
			ginkgo.Fail("tear down the cluster: " + err.Error())
		}
	})
	ginkgo.DeferCleanup(s.keepAtRest, ginkgo.NodeTimeout(keepFor))
	ginkgo.DeferCleanup(func(ctx ginkgo.SpecContext) { s.atRest(ctx, c) }, ginkgo.NodeTimeout(checkWithin))
	return c
}

// Running builds a cluster whose mesh has begun to talk: three nodes unless told otherwise, one that
// something happens to and a pair that it must not touch.
func (s *Suite) Running(ctx context.Context, opts Options) *Cluster {
	ginkgo.GinkgoHelper()
	if opts.Nodes == 0 {
		opts.Nodes = 3
	}
	if opts.IPv6 {
		Needs(driver.FeatureIPv6)
	}
	c := s.Cluster(ctx, opts)
	c.StartMesh(ctx)
	c.TalkFor(ctx, 15)
	return c
}

const (
	// checkWithin bounds healing, waiting for rest and checking.
	checkWithin = time.Minute
	// explainWithin bounds following packets and recording the state after a failure.
	explainWithin = 30 * time.Second
)

// atRest checks the invariants of a cluster whose specs have passed.
func (s *Suite) atRest(ctx context.Context, c *Cluster) {
	ginkgo.GinkgoHelper()
	s.mu.Lock()
	failed := s.failed[c]
	s.mu.Unlock()
	if spec := ginkgo.CurrentSpecReport(); failed || spec.State != types.SpecStatePassed {
		return
	}
	c.recorder.EndMesh()
	results, err := c.checker.AtRest(ctx)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	for _, r := range results {
		if r.Waived && r.OK {
			ginkgo.GinkgoWriter.Printf("invariant %s was waived without need (%s)\n", r.ID, r.Why)
		}
	}
	if text := checker.Failures(results); text != "" {
		if err := c.recorder.WriteState(ctx); err != nil {
			ginkgo.GinkgoWriter.Printf("record the state: %v\n", err)
		}
		ginkgo.Fail("at rest, after all else had passed:\n" + text)
	}
}

// UnderTest is the overlay under test: this project's, unless NEMESH_AGENT names another. With defects it is
// always this project's, in the build that has them.
func UnderTest(defects ...string) Driver {
	ginkgo.GinkgoHelper()
	bin := os.Getenv(build.Env)
	if d := os.Getenv(DefectEnv); d != "" && len(defects) == 0 {
		defects = []string{d}
	}
	if len(defects) > 0 {
		return driver.Ours{Bin: bin, Defects: defects}
	}
	d, err := driver.Open(driver.FromEnv(), bin)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	return d
}

// WithDefect is the overlay under test where it is of a version that has the historic defect for real, and
// this project's with the defect otherwise.
func WithDefect(name string) Driver {
	ginkgo.GinkgoHelper()
	if d := UnderTest(); driver.HasDefect(d, name) {
		return d
	}
	return UnderTest(name)
}

// IsOurs reports whether the overlay under test is this project's, whose words can be expected.
func IsOurs() bool {
	ginkgo.GinkgoHelper()
	_, own := UnderTest().(driver.Ours)
	return own
}

// Needs skips the running spec, with one line, where the agent under test lacks something that it is about.
func Needs(features ...Feature) {
	ginkgo.GinkgoHelper()
	if err := driver.Lacks(UnderTest(), features...); err != nil {
		ginkgo.Skip(err.Error())
	}
}

// Has reports whether the agent under test has a feature.
func Has(f Feature) bool {
	ginkgo.GinkgoHelper()
	return driver.Lacks(UnderTest(), f) == nil
}

// OwnBuild drives this project's overlay as it was built, whatever the overlay under test is.
func OwnBuild() Ours { return driver.Ours{Bin: os.Getenv(build.Env)} }

// NeedsProgram skips the running spec where an agent needs a program that the machine does not have. Any
// other error of its Check fails the spec.
func NeedsProgram(d Driver) {
	ginkgo.GinkgoHelper()
	err := d.Check()
	var missing *driver.MissingProgramError
	switch {
	case errors.As(err, &missing):
		ginkgo.Skip(missing.Error())
	case err != nil:
		ginkgo.Fail(err.Error())
	}
}
