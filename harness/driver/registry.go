package driver

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// registry holds the drivers that have been registered, by name.
var registry struct {
	sync.Mutex
	drivers map[string]Driver
}

// agentName is what a driver may be registered as: no path, and no driver file.
var agentName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Register makes a driver known by a name, by which --agent and NEMESH_AGENT choose it. It is for init
// functions and variables of a suite: a name that is taken, or could be a file's, is a mistake in the
// program and panics.
func Register(name string, d Driver) {
	registry.Lock()
	defer registry.Unlock()
	taken := name == oursWord || registry.drivers[name] != nil
	switch {
	case taken:
		panic(fmt.Sprintf("driver: there is an agent %q already: register yours by another name", name))
	case !agentName.MatchString(name):
		panic(
			fmt.Sprintf("driver: %q is no name for an agent: small letters, digits and hyphens make one, such as "+
				"static-routes", name),
		)
	}
	if registry.drivers == nil {
		registry.drivers = map[string]Driver{}
	}
	registry.drivers[name] = d
}

// Registered lists the names of the drivers that have been registered, sorted.
func Registered() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.drivers))
}

func registered(name string) (Driver, bool) {
	registry.Lock()
	defer registry.Unlock()
	d, ok := registry.drivers[name]
	return d, ok
}

// openRegistered returns the driver that a choice names. It brings the CNI configuration of its own.
func openRegistered(c Choice) (d Driver, found bool, err error) {
	d, found = registered(c.Agent)
	if found && (c.CNIConf != "" || len(c.CNIDirs) > 0) {
		err = fmt.Errorf("the agent %s is one of the suite's own and says itself with what pods are made: leave "+
			"out --cni-conf and --cni-bin-dir (%s, %s)", c.Agent, CNIConfEnv, CNIDirsEnv)
	}
	return d, found, err
}

// known lists what --agent may be beside a path, for messages.
func known() string { return strings.Join(append([]string{oursWord}, Registered()...), ", ") }
