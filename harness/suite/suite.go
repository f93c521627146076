// Package suite joins Ginkgo and the harness: clusters that belong to a spec, faults whose missing proof
// makes a spec not proven, and a verdict in the record for each spec.
package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/nemesh/nemesh/harness"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/invariant"
	"github.com/nemesh/nemesh/reports/record"
)

const (
	// RecordEnv names the environment variable with the path of the record; without it nothing is recorded.
	RecordEnv = "NEMESH_RECORD"
	// entryUnproven is the report entry that marks a spec as not proven.
	entryUnproven = "not proven"
)

// Suite is the state that the specs of one process share.
type Suite struct {
	record *record.Writer
	dir    string // of the run, in which the record is; "" when nothing is recorded

	mu       sync.Mutex
	clusters []*harness.Cluster // of the spec or the ordered container that is running
	failed   map[*harness.Cluster]bool
	counted  map[*harness.Cluster]counted // at the end of the spec before, of open clusters
	died     []string                     // where packets of the running spec died
	active   []record.Injection           // what was not healed when the running spec failed
}

// New opens the record, and has Ginkgo report each spec to it. It must be called while the tree of specs is
// built, at the top level.
func New() *Suite {
	s := &Suite{failed: map[*harness.Cluster]bool{}, counted: map[*harness.Cluster]counted{}}
	if path := os.Getenv(RecordEnv); path != "" {
		w, err := record.Open(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "nemesh:", err)
			os.Exit(2)
		}
		s.record, s.dir = w, filepath.Dir(path)
	}
	ginkgo.ReportBeforeSuite(func(ginkgo.Report) { // on one process of several
		s.record.Write(record.Event{Kind: record.KindCatalogue, Catalogue: catalogue()})
	})
	ginkgo.BeforeEach(func() {
		skipWhileKept()
		s.began(ginkgo.CurrentSpecReport().FullText())
	})
	ginkgo.JustAfterEach(func(ctx ginkgo.SpecContext) {
		if ginkgo.CurrentSpecReport().Failed() {
			s.explain(ctx)
		} else {
			s.ended()
		}
	})
	ginkgo.ReportAfterEach(s.verdict)
	return s
}

// catalogue is the table of faults for the record: reports have the component and the promise of each from
// there.
func catalogue() []record.FaultKind {
	var kinds []record.FaultKind
	for _, e := range fault.Catalogue() {
		kinds = append(kinds, record.FaultKind{
			ID: e.ID, About: e.About, Component: string(e.Component), Promise: e.Promise,
		})
	}
	return kinds
}

// Cluster builds a cluster for the running spec, or for its ordered container when called in BeforeAll, and
// tears it down afterwards. When all that used it has passed, its faults are healed and the invariants are
// checked before. A world that cannot be built makes the spec not proven.
func (s *Suite) Cluster(ctx context.Context, opts harness.Options) *harness.Cluster {
	ginkgo.GinkgoHelper()
	c, err := harness.New(ctx, opts.WithEnv(), s.record.For(ginkgo.CurrentSpecReport().FullText()))
	if err != nil {
		notProven(err)
	}
	s.mu.Lock()
	s.clusters = append(s.clusters, c)
	s.mu.Unlock()
	ginkgo.DeferCleanup(func() {
		s.mu.Lock()
		failed := s.failed[c]
		delete(s.failed, c)
		s.mu.Unlock()
		if failed || ginkgo.CurrentSpecReport().Failed() {
			s.keep(c)
		}
		if err := c.Close(); err != nil {
			ginkgo.Fail("tear down the cluster: " + err.Error())
		}
	})
	ginkgo.DeferCleanup(func(ctx ginkgo.SpecContext) { s.atRest(ctx, c) }, ginkgo.NodeTimeout(checkWithin))
	return c
}

// checkWithin bounds healing, waiting for rest and checking.
const checkWithin = time.Minute

// atRest checks the invariants of a cluster whose specs have passed.
func (s *Suite) atRest(ctx context.Context, c *harness.Cluster) {
	ginkgo.GinkgoHelper()
	s.mu.Lock()
	failed := s.failed[c]
	s.mu.Unlock()
	if spec := ginkgo.CurrentSpecReport(); failed || spec.State != types.SpecStatePassed {
		return
	}
	results, err := c.CheckInvariants(ctx)
	if err != nil {
		ginkgo.Fail(err.Error())
	}
	for _, r := range results {
		if r.Waived && r.OK {
			ginkgo.GinkgoWriter.Printf("invariant %s was waived without need (%s)\n", r.ID, r.Why)
		}
	}
	if text := invariant.Failures(results); text != "" {
		if err := c.WriteState(ctx); err != nil {
			ginkgo.GinkgoWriter.Printf("record the state: %v\n", err)
		}
		ginkgo.Fail("at rest, after all else had passed:\n" + text)
	}
}

// Waive says that a spec means to break an invariant, by its id, and why. The record then shows what it
// broke;
// a waiver that was not needed is reported in the spec's output and can be told in the record (ok and
// waived).
func Waive(c *harness.Cluster, id, why string) {
	ginkgo.GinkgoHelper()
	if err := c.Waive(id, why); err != nil {
		ginkgo.Fail(err.Error())
	}
}

// Inject applies faults. One that cannot be proved makes the spec not proven.
func Inject(ctx context.Context, c *harness.Cluster, faults ...fault.Fault) {
	ginkgo.GinkgoHelper()
	for _, f := range faults {
		Step(c, f.Name())
		if err := c.Inject(ctx, f); err != nil {
			if errors.Is(err, fault.ErrNotProven) {
				notProven(err)
			}
			ginkgo.Fail(err.Error())
		}
	}
}

// Heal undoes all faults and returns the moment at which the last was undone.
func Heal(ctx context.Context, c *harness.Cluster) time.Time {
	ginkgo.GinkgoHelper()
	Step(c, "healed")
	at, err := c.Heal(ctx)
	if err != nil {
		ginkgo.Fail("heal: " + err.Error())
	}
	return at
}

// Step says, in Ginkgo's output and in the record, what a scenario does next.
func Step(c *harness.Cluster, text string) {
	ginkgo.GinkgoHelper()
	ginkgo.By(text)
	c.Step(text)
}

func notProven(err error) {
	ginkgo.GinkgoHelper()
	ginkgo.AddReportEntry(entryUnproven, err.Error(), ginkgo.ReportEntryVisibilityNever)
	ginkgo.Fail("not proven: " + err.Error())
}

// began has what happens in the clusters of an ordered container belong to the spec that begins.
func (s *Suite) began(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = nil
	for _, c := range s.clusters {
		c.SetScenario(name)
	}
}

// ended records the state that a spec leaves.
func (s *Suite) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clusters {
		c.NoteState(record.After)
	}
}

// explain follows packets that should have got an answer, and records what kernels and etcd hold, while the
// cluster of a failed spec still stands.
func (s *Suite) explain(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clusters {
		s.failed[c] = true
		for _, i := range c.Summary().Injections {
			if i.Active {
				s.active = append(s.active, i)
			}
		}
		followErr := s.follow(ctx, c)
		if err := errors.Join(followErr, c.WriteReach(ctx), c.WriteState(ctx)); err != nil {
			ginkgo.GinkgoWriter.Printf("record the state: %v\n", err)
		}
	}
}

// follow finds out where packets of wrong pairs die, for the top of the failure's text.
func (s *Suite) follow(ctx context.Context, c *harness.Cluster) error {
	traces, err := c.FollowWrong(ctx, s.dir, ginkgo.CurrentSpecReport().FullText())
	for _, t := range traces {
		if t.Cause == follow.Delivered {
			continue
		}
		sentence := fmt.Sprintf("%s → %s: %s", t.From, t.To, t.Sentence)
		s.died = append(s.died, sentence)
		ginkgo.AddReportEntry("where the packet died", sentence)
	}
	return err
}

// verdict records how a spec ended. Clusters that are closed by then are forgotten.
func (s *Suite) verdict(r types.SpecReport) {
	if r.State == types.SpecStatePending || (r.State == types.SpecStateSkipped && r.Failure.Message == "") {
		return // not chosen by the filter
	}
	if r.State == types.SpecStateSkipped && strings.Contains(r.Failure.Message, notStarted) {
		return
	}
	v := &record.Verdict{
		State:       stateOf(r),
		Duration:    int64(r.RunTime),
		Labels:      r.Labels(),
		Message:     r.Failure.Message,
		Interrupted: interrupted(r),
		Location:    location(r),
		Reported:    reported(r.LeafNodeLocation.FileName, r.LeafNodeLocation.LineNumber),
	}
	s.mu.Lock()
	v.Message = strings.Join(append(s.died, v.Message), "\n")
	s.died = nil
	var open []*harness.Cluster
	for _, c := range s.clusters {
		sum := c.Summary()
		addSummary(v, sum, s.counted[c])
		v.Clusters = append(v.Clusters, c.ID())
		if c.Closed() {
			delete(s.counted, c)
			continue
		}
		s.counted[c] = take(time.Now(), sum.Report)
		open = append(open, c)
	}
	if len(s.active) > 0 {
		wereActive(v, s.active)
	}
	s.clusters, s.active = open, nil
	s.mu.Unlock()
	s.record.For(r.FullText()).Write(record.Event{Kind: record.KindVerdict, Verdict: v})
}

func stateOf(r types.SpecReport) string {
	switch r.State {
	case types.SpecStatePassed:
		return record.Passed
	case types.SpecStateSkipped:
		return record.Skipped
	}
	if interrupted(r) { // nothing was shown
		return record.Unproven
	}
	for _, e := range r.ReportEntries {
		if e.Name == entryUnproven {
			return record.Unproven
		}
	}
	return record.Failed
}

// interrupted reports whether a spec was ended from outside. Ginkgo gives one that the suite's time-out ends
// the state of one that its own time-out ends, and another message.
func interrupted(r types.SpecReport) bool {
	return r.State == types.SpecStateInterrupted || r.State == types.SpecStateAborted ||
		r.State == types.SpecStateTimedout && strings.HasPrefix(r.Failure.Message, "A suite timeout")
}

// location is where the spec failed, or where it stands, from the repository's root on.
func location(r types.SpecReport) string {
	at := r.LeafNodeLocation
	if r.Failed() && r.Failure.Location.FileName != "" {
		at = r.Failure.Location
	}
	file := at.FileName
	if i := strings.LastIndex(file, "/scenarios/"); i >= 0 {
		file = file[i+1:]
	}
	return fmt.Sprintf("%s:%d", file, at.LineNumber)
}
