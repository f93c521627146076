package fault

import (
	"fmt"
	"maps"
	"slices"
)

// Component is what a fault breaks.
type Component string

// The components that faults of this package break. A module of its own may have others.
const (
	ComponentEtcd   Component = "etcd"
	ComponentAgent  Component = "agent"
	ComponentNode   Component = "node"
	ComponentKernel Component = "kernel"
	ComponentDisk   Component = "disk"
	ComponentCNI    Component = "CNI"
)

// Custom is the id of a fault that only one scenario has, unless it gives another.
const Custom = "custom"

// Identity says what a fault is, for programs: what the record, the reports and the lists know of it. People
// read its name.
type Identity struct {
	// ID is that of its row in the table, such as "routes-delete", or Custom.
	ID string
	// Component is what it breaks, and Promise what the overlay says should be felt. Both are the row's where
	// there is a row.
	Component Component
	Promise   string
	// Nodes are the machines at which it is injected, by name; none where that is the control plane as a whole.
	Nodes []string
	// Params are what else tells it from others of its kind, named as the parameters of its row.
	Params map[string]string
}

// at is the identity of a fault of the table.
func at(id string, nodes ...string) Identity { return Identity{ID: id, Nodes: nodes} }

// with adds a parameter, unless its value is empty.
func (i Identity) with(param string, value any) Identity {
	text := fmt.Sprint(value)
	if text == "" {
		return i
	}
	i.Params = maps.Clone(i.Params)
	if i.Params == nil {
		i.Params = map[string]string{}
	}
	i.Params[param] = text
	return i
}

// same reports whether two identities are those of the same fault.
func (i Identity) same(o Identity) bool {
	return i.ID == o.ID && slices.Equal(i.Nodes, o.Nodes) && maps.Equal(i.Params, o.Params)
}

// Identify returns a fault's identity with the component and the promise of its row.
func Identify(f Fault) Identity {
	i := f.Identity()
	if i.ID == "" {
		i.ID = Custom
	}
	if e, ok := Find(i.ID); ok {
		i.Component, i.Promise = e.Component, e.Promise
	}
	return i
}
