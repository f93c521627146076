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
	active   []string             // what was broken when the running spec failed
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

// explain follows packets that should have got an answer, and records what kernels and etcd hold, while the
// cluster of a failed spec still stands.
func (s *Suite) explain(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clusters {
		s.failed[c] = true
		s.active = append(s.active, c.Summary().Active...)
		followErr := s.follow(ctx, c)
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
	s.died = nil
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
		v.Active = s.active
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
