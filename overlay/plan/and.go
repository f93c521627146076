//go:build defects

package plan

import "slices"

// And returns the state plus another's routes, neighbours and forwarding entries for destinations that it
// does not have itself.
func (s State) And(o State) State {
	for _, r := range o.Routes {
		if !slices.ContainsFunc(s.Routes, func(have Route) bool { return have.Dst == r.Dst }) {
			s.Routes = append(slices.Clip(s.Routes), r)
		}
	}
	for _, n := range o.Neighbours {
		if !slices.ContainsFunc(s.Neighbours, func(have Neighbour) bool { return have.IP == n.IP }) {
			s.Neighbours = append(slices.Clip(s.Neighbours), n)
		}
	}
	for _, f := range o.FDB {
		if !slices.ContainsFunc(s.FDB, func(have FDB) bool { return have.MAC == f.MAC }) {
			s.FDB = append(slices.Clip(s.FDB), f)
		}
	}
	return s
}
