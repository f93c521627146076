package fault

import (
	"net/netip"
	"strings"
)

// The promises that several faults share.
const (
	idle      = "no packet lost; new pods work; agents wait"
	nothing   = "no packet lost; nothing in the kernel changes"
	relisted  = "no packet lost; agents list and register again"
	repaired  = "repaired within a second"
	kept      = "reported and counted; no packet lost"
	cutOff    = "lost while it lasts, and only there; back at once when healed"
	degraded  = "loses what the cable loses; nothing is torn down"
	sameLease = "no packet lost; the same subnet again"
)

// of gives rows their component.
func of(c Component, rows ...Entry) []Entry {
	for i := range rows {
		rows[i].Component = c
	}
	return rows
}

// fixed is the row of a fault without a node.
func fixed(id, about, promise string, f Fault) Entry {
	return Entry{ID: id, About: about, Promise: promise, Make: func(Place) (Fault, error) { return f, nil }}
}

// onNode is the row of a fault that is told by its node alone.
func onNode(id, about, promise string, f func(node string) Fault) Entry {
	return Entry{
		ID: id, About: about, Promise: promise,
		Make: func(p Place) (Fault, error) { return f(p.Node), nil },
	}
}

// inWorld is the row of a fault that depends on what there is in the world.
func inWorld(id, about, promise string, f func(w World, node string) Fault) Entry {
	return Entry{
		ID: id, About: about, Promise: promise,
		Make: func(p Place) (Fault, error) { return f(p.World, p.Node), nil },
	}
}

func ofEtcd() []Entry {
	return of(ComponentEtcd, append([]Entry{
		fixed("etcd-stop", "every member of etcd ends as an operator would end it", idle, EtcdStop{}),
		fixed("etcd-kill", "every member of etcd is killed", idle, EtcdKill{}),
		fixed("etcd-pause", "etcd stops as it is: connections stay open and nothing answers", idle, EtcdPause{}),
		fixed("etcd-wipe", "etcd comes back empty but for the network configuration", relisted, EtcdWipe{}),
		fixed("etcd-restore", "etcd comes back from an older snapshot, its revision going backwards", relisted,
			EtcdRestored{}),
		fixed("etcd-compact", "etcd's history is discarded, so that watches must list anew", relisted,
			EtcdCompacted{}),
		fixed("etcd-defragment", "etcd gives space back to the disk and does not answer meanwhile", idle,
			EtcdDefragmented{}),
		fixed("etcd-leader-change", "etcd's leader hands over to another member", idle, EtcdLeaderMoved{}),
		fixed("etcd-member-loss", "etcd's leader is killed, and the others go on", idle, EtcdMemberLost{}),
		fixed("etcd-quorum-loss", "all members of etcd but one are killed", idle, EtcdQuorumLost{}),
		fixed("etcd-no-space", "etcd answers reads and refuses writes by alarm NOSPACE", idle, EtcdNoSpace{}),
		{
			ID: "etcd-slow", About: "requests to etcd and its answers are delayed", Promise: idle,
			Params: map[string]string{"by": "150ms"},
			Make: func(p Place) (Fault, error) {
				by, err := p.Duration("by")
				return EtcdSlow{by}, err
			},
		},
		fixed("etcd-cert-expired", "etcd presents a certificate that has expired", idle, EtcdCertExpired{}),
		fixed("etcd-cert-replaced", "etcd presents a certificate of an authority nobody trusts", idle,
			EtcdCertReplaced{}),
		onNode("client-cert-expired", "the certificate of a node's agent has expired", idle,
			func(n string) Fault { return ClientCertExpired{n} }),
		fixed("etcd-permission-removed", "agents may neither read nor write", idle, EtcdPermissionRemoved{}),
		fixed("etcd-write-removed", "agents may read and not write", idle,
			EtcdPermissionRemoved{KeepRead: true}),
	}, ofKeys()...)...)
}

func ofKeys() []Entry {
	return []Entry{
		{
			ID: "lease-expire", About: "an agent is paused until its lease has expired", Promise: sameLease,
			Params: map[string]string{"within": "1m"},
			Make: func(p Place) (Fault, error) {
				within, err := p.Duration("within")
				return Several{
					ID: "lease-expire", What: "lease of " + p.Node + " expired under a paused agent",
					Nodes: []string{p.Node}, Params: p.Params,
					Faults: []Fault{AgentPause{p.Node}, LeaseExpire{p.Node, within}},
				}, err
			},
		},
		onNode("lease-revoke", "the etcd lease of a node's subnet is revoked", sameLease,
			func(n string) Fault { return LeaseRevoked{n} }),
		onNode("lease-delete", "the key of a node's lease is deleted", sameLease,
			func(n string) Fault { return LeaseDeleted{n} }),
		onNode("lease-overwrite", "nonsense without TTL is written over a node's lease", sameLease,
			func(n string) Fault { return LeaseOverwritten{n} }),
		{
			ID: "subnet-taken", About: "a node's subnet is given to another while it is cut off", Lasting: true,
			Promise: "moves at once, loudly; new pods work; the new owner is not disturbed",
			Make: func(p Place) (Fault, error) {
				return Several{
					ID: "subnet-taken", What: "subnet of " + p.Node + " lost to " + p.other(),
					Nodes: []string{p.Node, p.other()},
					Faults: []Fault{
						// The taker comes up as a node that never had a subnet of its own.
						AgentStop{p.other()},
						LeaseRevoked{p.other()},
						StateLost{p.other()},
						CutFromEtcd{p.Node},
						LeaseRevoked{p.Node},
						SubnetTaken{p.Node, p.other()},
					},
				}, nil
			},
		},
		{
			ID: "key-delete", About: "a key under the overlay's prefix is deleted", Promise: idle, Lasting: true,
			Params: map[string]string{"key": "config"},
			Make:   func(p Place) (Fault, error) { return KeyDeleted{p.Params["key"]}, nil },
		},
		{
			ID: "key-put", About: "nonsense is put under the overlay's prefix",
			Promise: "reported, counted, ignored; no packet lost",
			Params:  map[string]string{"key": "subnets/nonsense", "value": "{"},
			Make: func(p Place) (Fault, error) {
				key := p.Params["key"]
				return KeysPut{"nonsense at " + key, map[string]string{key: p.Params["value"]}}, nil
			},
		},
		{
			ID: "config-change", About: "the network configuration is changed: another MTU, unless told to what",
			Promise: "nothing changes until an agent restarts; then nothing of the old one is left",
			Params:  map[string]string{"config": ""}, Lasting: true,
			Make: func(p Place) (Fault, error) { return ConfigChanged{p.Params["config"]}, nil },
		},
	}
}

func ofAgents() []Entry {
	return of(
		ComponentAgent,
		onNode("agent-kill", "an agent is killed", nothing, func(n string) Fault { return AgentKill{n} }),
		onNode("agent-stop", "an agent ends by SIGTERM", nothing, func(n string) Fault { return AgentStop{n} }),
		onNode("agent-pause", "an agent stops as it is", nothing, func(n string) Fault { return AgentPause{n} }),
		onNode("agent-restart", "an agent ends by SIGTERM and another starts", nothing,
			func(n string) Fault { return AgentRestart{n} }),
		Entry{
			ID: "agent-crash-loop", About: "an agent is killed again and again", Promise: nothing,
			Params: map[string]string{"every": "300ms"},
			Make: func(p Place) (Fault, error) {
				every, err := p.Duration("every")
				return AgentCrashLoop{p.Node, every}, err
			},
		},
		Entry{
			ID: "agent-replaced", About: "an agent is replaced by another binary, a copy unless told which",
			Promise: nothing, Params: map[string]string{"path": ""},
			Make: func(p Place) (Fault, error) { return AgentReplaced{p.Node, p.Params["path"]}, nil },
		},
		Entry{
			ID: "agent-flags", About: "an agent is started with other flags", Promise: nothing,
			Params: map[string]string{"flags": "--log-level=debug"},
			Make: func(p Place) (Fault, error) {
				return AgentFlags{p.Node, strings.Fields(p.Params["flags"])}, nil
			},
		},
		onNode("agent-starved", "an agent gets next to no processor time", nothing,
			func(n string) Fault { return AgentStarved{n} }),
		onNode("agent-out-of-files", "an agent can open nothing more", nothing,
			func(n string) Fault { return AgentOutOfFiles{n} }),
	)
}

func ofDisks() []Entry {
	return of(
		ComponentDisk,
		onNode("run-full", "there is no room where the subnet file is", kept,
			func(n string) Fault { return RunFull{n} }),
		onNode("state-read-only", "an agent's state folder is read-only", kept,
			func(n string) Fault { return StateReadOnly{n} }),
		inWorld("subnet-file-truncated", "the subnet file is cut to nothing", "written again; new pods work",
			func(w World, n string) Fault { return SubnetFileTruncated(w, n) }),
		Entry{
			ID: "file-delete", About: "a file on a node is deleted; the subnet file unless told which",
			Promise: "the subnet file is written again; new pods work",
			Params:  map[string]string{"path": ""}, Lasting: true,
			Make: func(p Place) (Fault, error) {
				path := p.Params["path"]
				if path == "" {
					path = p.World.SubnetFile()
				}
				return FileDeleted{p.Node, path}, nil
			},
		},
		inWorld("state-truncated", "an agent's state is cut to nothing", kept,
			func(w World, n string) Fault { return StateTruncated(w, n) }),
		Entry{
			ID: "state-lost", About: "all that an agent keeps is deleted while it runs", Lasting: true,
			Promise: "no packet lost; what the lease and subnet.env tell is taken over",
			Make:    func(p Place) (Fault, error) { return StateLost{p.Node}, nil },
		},
	)
}

func ofCNI() []Entry {
	return of(
		ComponentCNI,
		onNode("cni-cache-truncated", "what CNI keeps of each pod is cut to nothing",
			"DEL succeeds and leaves nothing", func(n string) Fault { return CNICacheTruncated(n) }),
		onNode("pods-vanish", "the pods of a node are gone without DEL",
			"GC frees what they held; new pods work", func(n string) Fault { return PodsVanished{n} }),
		onNode("del-without-delegate", "DEL of a pod while the delegate is missing",
			"fails, keeps what the next DEL needs", func(n string) Fault { return DelWithoutDelegate{n} }),
		Entry{
			ID: "add-storm", About: "many pods at once on a node", Promise: "every pod works, no address twice",
			Params: map[string]string{"pods": "8"},
			Make: func(p Place) (Fault, error) {
				n, err := p.Number("pods")
				return AddStorm{p.Node, n}, err
			},
		},
	)
}

// unused is an address of the underlay that no machine has.
func unused(w World) netip.Prefix {
	addr := w.Switch().Gateway().Next()
	taken := map[netip.Addr]bool{}
	for _, m := range w.Etcd().Members() {
		taken[m.Machine().Addr()] = true
	}
	for _, name := range w.Nodes() {
		if m, err := w.Machine(name); err == nil {
			taken[m.Addr()] = true
		}
	}
	for taken[addr] {
		addr = addr.Next()
	}
	return netip.PrefixFrom(addr, w.Switch().Bits())
}
