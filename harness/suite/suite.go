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

	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/follow"
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
	clusters []*Cluster // of the spec or the ordered container that is running
	failed   map[*Cluster]bool
	counted  map[*Cluster]counted // at the end of the spec before, of open clusters
	died     []string             // where packets of the running spec died
	active   []record.Injection   // what was not healed when the running spec failed
	kept     time.Duration        // how long the running spec's world was kept after it failed
}

// New opens the record, and has Ginkgo report each spec to it. It must be called while the tree of specs is
// built, at the top level.
func New() *Suite {
	s := &Suite{failed: map[*Cluster]bool{}, counted: map[*Cluster]counted{}}
	if path := os.Getenv(RecordEnv); path != "" {
		w, err := record.Open(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "nemesh:", err)
			os.Exit(2)
		}
		s.record, s.dir = w, filepath.Dir(path)
	}
	// Ginkgo calls it in one of its processes, and each of them knows all specs.
	ginkgo.ReportBeforeSuite(func(r ginkgo.Report) {
		plan := &record.Plan{Scenarios: r.PreRunStats.SpecsThatWillRun}
		s.record.Write(record.Event{Kind: record.KindPlan, Plan: plan})
		s.record.Write(record.Event{Kind: record.KindCatalogue, Catalogue: catalogue()})
	})
	ginkgo.BeforeEach(func() {
		skipWhileKept()
		s.began(ginkgo.CurrentSpecReport().FullText())
		// The last one registered runs first. Both run before any clean-up, and the spec's own time limit does
		// not apply to them.
		ginkgo.DeferOnFailure(s.keep, ginkgo.NodeTimeout(keepFor))
		ginkgo.DeferOnFailure(s.explain, ginkgo.NodeTimeout(explainWithin))
	})
	ginkgo.JustAfterEach(func() {
		if !ginkgo.CurrentSpecReport().Failed() {
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

func notProven(err error) {
	ginkgo.GinkgoHelper()
	ginkgo.AddReportEntry(entryUnproven, err.Error(), ginkgo.ReportEntryVisibilityNever)
	ginkgo.Fail("not proven: " + err.Error())
}

// began records that a spec begins. What happens in the clusters of its ordered container belongs to it from
// now on.
func (s *Suite) began(name string) {
	s.record.For(name).Write(record.Event{Kind: record.KindBegin})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = nil
	for _, c := range s.clusters {
		c.Record().SetScenario(name)
	}
}

// ended records the state that a spec leaves.
func (s *Suite) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clusters {
		c.recorder.NoteState(record.After)
	}
}

// explain records what kernels and etcd hold when a spec fails, and follows packets that should have got an
// answer. A spec that was interrupted expected none. What fails in a clean-up has recorded its own state.
func (s *Suite) explain(ctx ginkgo.SpecContext) {
	spec := ginkgo.CurrentSpecReport()
	if spec.Failure.FailureNodeType.Is(types.NodeTypesAllowedDuringCleanupInterrupt) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clusters {
		s.failed[c] = true
		for _, i := range c.Summary().Injections {
			if i.Active {
				s.active = append(s.active, i)
			}
		}
		var followErr error
		if !interrupted(spec) {
			followErr = s.follow(ctx, c)
		}
		_, askErr := c.AskMesh(ctx)
		if err := errors.Join(followErr, askErr, c.recorder.WriteState(ctx)); err != nil {
			ginkgo.GinkgoWriter.Printf("record the state: %v\n", err)
		}
	}
}

// follow finds out where packets of wrong pairs die, for the top of the failure's text.
func (s *Suite) follow(ctx context.Context, c *Cluster) error {
	traces, err := c.recorder.FollowWrong(ctx, s.dir, ginkgo.CurrentSpecReport().FullText())
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
	v.Kept = int64(s.kept)
	s.died, s.kept = nil, 0
	var open []*Cluster
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

// location is where the spec failed, or where it stands: the folder of the suite, its file and the line.
func location(r types.SpecReport) string {
	at := r.LeafNodeLocation
	if r.Failed() && r.Failure.Location.FileName != "" {
		at = r.Failure.Location
	}
	file := at.FileName
	if i := strings.LastIndex(file, "/scenarios/"); i >= 0 {
		file = file[i+1:]
	} else if dir, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(filepath.Dir(dir), file); err == nil && filepath.IsLocal(short) {
			file = short
		}
	}
	return fmt.Sprintf("%s:%d", file, at.LineNumber)
}
