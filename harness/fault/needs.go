package fault

import "github.com/nemesh/nemesh/harness/driver"

// Needing is a Fault about something that not every agent has. Where the agent lacks it, a scenario that
// injects the fault is skipped.
type Needing interface {
	Fault
	Needs() []driver.Feature
}

// Needs lists the features of an agent that a fault is about.
func Needs(f Fault) []driver.Feature {
	if n, ok := f.(Needing); ok {
		return n.Needs()
	}
	return nil
}

// Needs implements Needing: it is about flannel's keys.
func (LeaseRevoked) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: it is about flannel's keys.
func (LeaseDeleted) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: it is about flannel's keys.
func (LeaseExpire) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: it is about flannel's keys.
func (LeaseOverwritten) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: it is about flannel's keys.
func (KeyDeleted) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: it is about flannel's keys.
func (KeysPut) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: the configuration is one of flannel's keys.
func (ConfigChanged) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: it takes the lease of one node and the subnet file of another.
func (SubnetTaken) Needs() []driver.Feature {
	return []driver.Feature{driver.FeatureKeys, driver.FeatureSubnetFile}
}

// Needs implements Needing: only an agent with keys in etcd has connections to end.
func (EtcdReset) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: only an agent with keys in etcd shows a certificate.
func (ClientCertExpired) Needs() []driver.Feature { return []driver.Feature{driver.FeatureKeys} }

// Needs implements Needing: it fills the file system of the subnet file.
func (RunFull) Needs() []driver.Feature { return []driver.Feature{driver.FeatureSubnetFile} }

// Needs implements Needing: it is about the agent's saved state.
func (StateLost) Needs() []driver.Feature { return []driver.Feature{driver.FeatureState} }

// Needs implements Needing: it is about the overlay's device.
func (AgeNeighbours) Needs() []driver.Feature { return []driver.Feature{driver.FeatureDevice} }

// Needs implements Needing: some tampering is done to the overlay's device, or to what hangs on it.
func (f Tamper) Needs() []driver.Feature {
	if f.What.needsDevice() {
		return []driver.Feature{driver.FeatureDevice}
	}
	return nil
}

// Needs implements Needing: a file that the agent does not have has no path.
func (f FilesTruncated) Needs() []driver.Feature {
	for _, path := range f.Paths {
		if path == "" {
			return []driver.Feature{driver.FeatureSubnetFile, driver.FeatureState}
		}
	}
	return nil
}

// Needs implements Needing: what each of them needs.
func (f Several) Needs() []driver.Feature {
	var all []driver.Feature
	for _, g := range f.Faults {
		all = append(all, Needs(g)...)
	}
	return all
}

// Needs implements Needing: it is about the agent's saved state.
func (StateReadOnly) Needs() []driver.Feature { return []driver.Feature{driver.FeatureState} }
