package suite

import (
	"testing"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/nemesh/nemesh/reports/record"
)

func TestInterruptedShowsNothing(t *testing.T) {
	for state, want := range map[types.SpecState]string{
		types.SpecStatePassed:      record.Passed,
		types.SpecStateFailed:      record.Failed,
		types.SpecStatePanicked:    record.Failed,
		types.SpecStateTimedout:    record.Failed,
		types.SpecStateInterrupted: record.Unproven,
		types.SpecStateAborted:     record.Unproven,
	} {
		r := types.SpecReport{State: state}
		if got := stateOf(r); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
	late := types.SpecReport{
		State:   types.SpecStateTimedout,
		Failure: types.Failure{Message: "A suite timeout occurred"},
	}
	if got := stateOf(late); got != record.Unproven {
		t.Errorf("when the run's time is up: %q", got)
	}
}
