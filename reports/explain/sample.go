package explain

import (
	"maps"
	"slices"
)

// thin lets go of the half with the higher hashes. What is kept has been followed since its first sighting,
// as the limit only ever falls.
func (fl *flow) thin() {
	keys := slices.Sorted(maps.Keys(fl.exchanges))
	fl.limit = keys[sampled-1]
	for _, k := range keys[sampled:] {
		delete(fl.exchanges, k)
	}
}

// estimate is how many exchanges the flow has had; exact says that all were followed.
func (fl *flow) estimate() (n int, exact bool) {
	if fl.limit == ^uint64(0) {
		return len(fl.exchanges), true
	}
	share := float64(fl.limit) / float64(^uint64(0))
	return int(float64(len(fl.exchanges)) / share), false
}
