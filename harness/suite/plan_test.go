package suite

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/nemesh/nemesh/reports/record"
)

// planEnv makes this test binary a suite of five specs, of which a filter leaves out one.
const planEnv = "NEMESH_TEST_PLAN"

// The record of a run in several processes says once how many specs it has, before it says that each of them
// begins and how it ended.
func TestPlanOfSeveralProcesses(t *testing.T) {
	if os.Getenv(planEnv) != "" {
		New()
		for _, name := range []string{"a", "b", "c", "d", "left out"} {
			ginkgo.It(name, func() {})
		}
		gomega.RegisterFailHandler(ginkgo.Fail)
		ginkgo.RunSpecs(t, "plan")
		return
	}
	path := filepath.Join(t.TempDir(), "record.jsonl")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "ginkgo", "run", "--procs=3", "--skip=left out", self, "--",
		"-test.run=^TestPlanOfSeveralProcesses$")
	cmd.Env = append(os.Environ(), planEnv+"=1", RecordEnv+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	events, err := record.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o := &record.Outcome{}
	plans, begun := 0, map[string]bool{}
	for _, e := range events {
		o.Add(e)
		switch e.Kind {
		case record.KindPlan:
			plans++
			if len(begun) > 0 {
				t.Errorf("%d scenarios began before the plan was there", len(begun))
			}
		case record.KindBegin:
			begun[e.Scenario] = true
		case record.KindVerdict:
			if !begun[e.Scenario] {
				t.Errorf("%q ended and did not begin", e.Scenario)
			}
		}
	}
	if plans != 1 || o.Planned != 4 || len(begun) != 4 || o.Count(record.Passed) != 4 {
		t.Errorf("%d plans, of %d scenarios; %d began, %d passed", plans, o.Planned, len(begun),
			o.Count(record.Passed))
	}
}
