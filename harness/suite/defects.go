package suite

import "github.com/onsi/ginkgo/v2"

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
