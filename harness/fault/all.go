package fault

import "time"

// All lists one fault of each kind, for a reader who wants to know what can be broken. Those of a node are on
// node; SubnetTaken gives its subnet to other. A new kind of fault is a struct and a line here.
func All(node, other string) []Fault {
	return []Fault{
		EtcdStop{}, EtcdKill{}, EtcdPause{}, EtcdWipe{}, EtcdRestored{}, EtcdCompacted{},
		CutFromEtcd{node},
		AgentKill{node}, AgentStop{node}, AgentPause{node}, AgentRestart{node},
		LeaseExpire{node, time.Minute}, LeaseRevoked{node}, LeaseDeleted{node}, LeaseOverwritten{node},
		SubnetTaken{node, other},
		KeyDeleted{"subnets/KEY"}, KeysPut{"nonsense", nil},
		FileDeleted{node, "/run/flannel/subnet.env"},
		AgeNeighbours{[]string{node}},
		Tamper{node, DeviceDeleted}, Tamper{node, DeviceDown}, Tamper{node, DeviceMACChanged},
		Tamper{node, RoutesDeleted}, Tamper{node, NeighboursDeleted}, Tamper{node, FDBDeleted},
		Tamper{node, RulesFlushed}, Tamper{node, ForwardingOff}, Tamper{node, ForwardDrop},
	}
}
