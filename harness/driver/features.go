package driver

import (
	"fmt"
	"slices"
)

// Feature is something that a scenario may ask of an agent beyond carrying packets. Only what is asked for
// by a flag or a file counts: a promise that an agent does not keep is a failure, not a lacking feature.
type Feature string

const (
	// FeatureKeys is flannel's keys in etcd: a network configuration, and leases below <prefix>/subnets. An
	// agent without it keeps what it knows elsewhere, and lacks all that is done by those keys.
	FeatureKeys Feature = "keys"
	// FeatureLeases is leases that can be listed, from those keys or by the driver (LeaseReader).
	FeatureLeases Feature = "leases"
	// FeatureSubnet is a node's subnet that can be read, from its subnet file or by the driver (SubnetReader).
	FeatureSubnet Feature = "subnet"
	// FeatureSubnetFile is a file with the node's subnet, as flannel leaves it for CNI.
	FeatureSubnetFile Feature = "subnet-file"
	// FeatureDevice is a device of the overlay's own on each node.
	FeatureDevice Feature = "device"
	// FeatureLeaseTTL is a lease whose time to live can be chosen. Without it, leases are revoked from outside.
	FeatureLeaseTTL Feature = "lease-ttl"
	// FeatureLeave is a call of the agent's program that gives the node's lease back (overlayd --leave).
	FeatureLeave Feature = "leave"
	// FeatureOwners is a record of who had a subnet that outlives the lease (<prefix>/owners).
	FeatureOwners Feature = "owners"
	// FeaturePublicIP is the flag --public-ip.
	FeaturePublicIP Feature = "public-ip"
	// FeatureEtcdV3 is keys in etcd's v3 API. An agent that has keys without it needs an etcd that still has
	// the v2 API (NeedsV2).
	FeatureEtcdV3 Feature = "etcd-v3"
	// FeatureIPv6 is a network of both families (EnableIPv6 in the network configuration).
	FeatureIPv6 Feature = "ipv6"
	// FeatureState is a saved state from which the agent starts without etcd (/var/lib/overlayd/state.json).
	FeatureState Feature = "state"
)

// Features lists every feature, with what it is in words.
func Features() map[Feature]string {
	return map[Feature]string{
		FeatureKeys:       "flannel's keys in etcd",
		FeatureLeases:     "leases that can be listed",
		FeatureSubnet:     "a subnet of each node that can be read",
		FeatureSubnetFile: "a subnet file as flannel leaves it",
		FeatureDevice:     "a device of the overlay's own",
		FeatureLeaseTTL:   "a lease whose time to live can be chosen",
		FeatureLeave:      "a call that gives the node's lease back",
		FeatureOwners:     "a record of who had a subnet that outlives the lease",
		FeatureEtcdV3:     "keys in etcd's v3 API",
		FeatureIPv6:       "a network of both families",
		FeaturePublicIP:   "a flag --public-ip",
		FeatureState:      "a saved state in a file of its own",
	}
}

// ofKeys are the features that an agent without flannel's keys in etcd cannot have.
var ofKeys = []Feature{
	FeatureKeys, FeatureLeaseTTL, FeatureLeave, FeatureOwners, FeaturePublicIP, FeatureEtcdV3, FeatureIPv6,
	FeatureState,
}

// Lacking lists the features that a driver's agent does not have: those that the driver names (Limited), and
// those for which it says nothing.
func Lacking(d Driver) []Feature {
	var lacking []Feature
	if l, ok := d.(Limited); ok {
		lacking = slices.Clone(l.Lacks())
	}
	_, reads := d.(SubnetReader)
	_, lists := d.(LeaseReader)
	if !keepsKeys(d) {
		lacking = append(lacking, ofKeys...)
	}
	lists = lists || !slices.Contains(lacking, FeatureKeys)
	for feature, has := range map[Feature]bool{
		FeatureLeases: lists, FeatureSubnet: reads || d.SubnetFile() != "",
		FeatureSubnetFile: d.SubnetFile() != "", FeatureDevice: d.Device(1) != "",
	} {
		if !has {
			lacking = append(lacking, feature)
		}
	}
	slices.Sort(lacking)
	return slices.Compact(lacking)
}

// LacksError says that an agent lacks a feature, in one line.
type LacksError struct {
	Agent   string
	Feature Feature
}

func (e *LacksError) Error() string {
	return fmt.Sprintf("%s lacks %q: %s", e.Agent, e.Feature, Features()[e.Feature])
}

// Lacks reports, as a *LacksError, the first of the features that a driver's agent does not have.
func Lacks(d Driver, needed ...Feature) error {
	lacking := Lacking(d)
	for _, f := range needed {
		if slices.Contains(lacking, f) {
			return &LacksError{Agent: d.Name(), Feature: f}
		}
	}
	return nil
}

// NeedsV2 reports whether a driver's agent keeps flannel's keys in etcd's v2 API.
func NeedsV2(d Driver) bool {
	return Lacks(d, FeatureKeys) == nil && Lacks(d, FeatureEtcdV3) != nil
}
