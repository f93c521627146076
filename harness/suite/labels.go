package suite

import (
	"fmt"

	"github.com/onsi/ginkgo/v2"

	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/reports/record"
)

// DefectEnv names the environment variable with a defect that the overlay under test is to have, wherever a
// scenario does not ask for one itself: then the scenarios that are Red under it must fail.
const DefectEnv = "NEMESH_DEFECT"

// RedPrefix begins the labels that Red makes.
const RedPrefix = "red:"

// Red names the defects under which a scenario must fail; `make detect` sees to it.
func Red(defects ...string) ginkgo.Labels {
	var labels ginkgo.Labels
	for _, d := range defects {
		labels = append(labels, RedPrefix+d)
	}
	return labels
}

// Breaks labels a scenario with the faults that it is about, by their ids in the table of faults, so that
// `nemesh run fault:etcd-stop` chooses it. An id that the table lacks is a mistake in the scenario: Breaks
// panics.
func Breaks(ids ...string) ginkgo.Labels {
	var labels ginkgo.Labels
	for _, id := range ids {
		if _, ok := fault.Find(id); !ok {
			panic(fmt.Sprintf("suite.Breaks: there is no fault %q: nemesh list faults shows the ids", id))
		}
		labels = append(labels, record.FaultLabel+id)
	}
	return labels
}
