// Package defect names historic failures that a separate build of the overlay (tag `defects`) can be told
// to have again, so that a scenario can show that it would notice. The normal build has none of them: every
// name is refused.
package defect

import (
	"fmt"
	"slices"
	"strings"
)

// Name is a defect's name on the command line.
type Name string

const (
	// OnDemandNeighbours resolves each pod address when a packet to it appears, with an entry that ages, as
	// flannel did before v0.9 (flannel#636).
	OnDemandNeighbours Name = "on-demand-neighbours"
	// ForgetSubnet takes another subnet once the lease has expired, though the old one is free, and leaves cni0
	// with the old gateway (terraform-kubernetes-installer#5, flannel#520).
	ForgetSubnet Name = "forget-subnet"
)

// Set is the defects of one process.
type Set map[Name]bool

// Has reports whether the process has the defect.
func (s Set) Has(n Name) bool { return s[n] }

// Parse reads the names given on a command line or in a configuration. An unknown name, and in the normal
// build any name, is an error that lists what there is.
func Parse(names []string) (Set, error) {
	set := Set{}
	for _, raw := range names {
		name := Name(raw)
		if !slices.Contains(built, name) {
			return nil, unknown(raw)
		}
		set[name] = true
	}
	return set, nil
}

// Built lists the defects that this build can have: none in the normal one.
func Built() []Name { return slices.Clone(built) }

func unknown(name string) error {
	if len(built) == 0 {
		return fmt.Errorf(
			"defect %q: this is the normal build, which has no defects; build with -tags defects",
			name,
		)
	}
	known := make([]string, len(built))
	for i, n := range built {
		known[i] = string(n)
	}
	return fmt.Errorf("defect %q is not known; there are: %s", name, strings.Join(known, ", "))
}
