package fault

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Entry is one kind of fault in the catalogue.
type Entry struct {
	// ID is its stable name, such as "uplink-down". About says in one line what it does.
	ID, About string
	// Args lists what can be given besides the node, with the values that hold otherwise.
	Args map[string]string
	// Lasting says that the world is not as before when it is healed: a subnet has moved, for one.
	Lasting bool

	make func(p place) (Fault, error)
}

// New makes the fault in a world, on a node where it is of one. Args that the entry does not have are an
// error.
func (e Entry) New(w World, node string, args map[string]string) (Fault, error) {
	if _, err := w.Machine(node); err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID, err)
	}
	all := maps.Clone(e.Args)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range args {
		if _, known := e.Args[name]; !known {
			return nil, fmt.Errorf("%s has no argument %q: it has %s", e.ID, name,
				strings.Join(append(slices.Sorted(maps.Keys(e.Args)), "no other"), ", "))
		}
		all[name] = value
	}
	f, err := e.make(place{w, node, all})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID, err)
	}
	return f, nil
}

// place is where a fault is made and with what.
type place struct {
	w    World
	node string
	args map[string]string
}

// share reads a percentage as a share.
func (p place) share(name string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(p.args[name], "%"), 64)
	if err == nil && (n <= 0 || n > 100) {
		err = fmt.Errorf("%g is not over 0 and up to 100", n)
	}
	if err != nil {
		return 0, fmt.Errorf("%s is a percentage: %w", name, err)
	}
	return n / 100, nil
}

func (p place) duration(name string) (time.Duration, error) {
	d, err := time.ParseDuration(p.args[name])
	if err != nil {
		return 0, fmt.Errorf("%s is a time, such as 50ms: %w", name, err)
	}
	return d, nil
}

func (p place) number(name string) (int, error) {
	n, err := strconv.Atoi(p.args[name])
	if err != nil {
		return 0, fmt.Errorf("%s is a number: %w", name, err)
	}
	return n, nil
}

// other is a node that is not the one of the fault.
func (p place) other() string {
	for _, n := range p.w.Nodes() {
		if n != p.node {
			return n
		}
	}
	return p.node
}

// Catalogue lists every kind of fault, by what it breaks. A new kind is a struct and a line here.
func Catalogue() []Entry {
	return slices.Concat(ofEtcd(), ofKeys(), ofAgents(), ofNodes(), ofKernels(), ofDisks(), ofPods())
}

func fixed(id, about string, f Fault) Entry {
	return Entry{ID: id, About: about, make: func(place) (Fault, error) { return f, nil }}
}

func onNode(id, about string, of func(node string) Fault) Entry {
	return Entry{ID: id, About: about, make: func(p place) (Fault, error) { return of(p.node), nil }}
}

func inWorld(id, about string, of func(w World, node string) Fault) Entry {
	return Entry{ID: id, About: about, make: func(p place) (Fault, error) { return of(p.w, p.node), nil }}
}

func ofEtcd() []Entry {
	return []Entry{
		fixed("etcd-stop", "every member of etcd ends as an operator would end it", EtcdStop{}),
		fixed("etcd-kill", "every member of etcd is killed", EtcdKill{}),
		fixed("etcd-pause", "etcd stops as it is: connections stay open and nothing answers", EtcdPause{}),
		fixed("etcd-wipe", "etcd comes back empty but for the network configuration", EtcdWipe{}),
		fixed(
			"etcd-restore",
			"etcd comes back from an older snapshot, its revision going backwards",
			EtcdRestored{},
		),
		fixed("etcd-compact", "etcd's history is discarded, so that watches must list anew", EtcdCompacted{}),
		fixed(
			"etcd-defragment",
			"etcd gives space back to the disk and does not answer meanwhile",
			EtcdDefragmented{},
		),
		fixed("etcd-leader-change", "etcd's leader hands over to another member", EtcdLeaderMoved{}),
		fixed("etcd-member-loss", "etcd's leader is killed, and the others go on", EtcdMemberLost{}),
		fixed("etcd-quorum-loss", "all members of etcd but one are killed", EtcdQuorumLost{}),
		fixed("etcd-no-space", "etcd answers reads and refuses writes by alarm NOSPACE", EtcdNoSpace{}),
		{
			ID:    "etcd-slow",
			About: "requests to etcd and its answers are delayed",
			Args:  map[string]string{"by": "150ms"},
			make: func(p place) (Fault, error) {
				by, err := p.duration("by")
				return EtcdSlow{by}, err
			},
		},
		fixed("etcd-cert-expired", "etcd presents a certificate that has expired", EtcdCertExpired{}),
		fixed(
			"etcd-cert-replaced",
			"etcd presents a certificate of an authority nobody trusts",
			EtcdCertReplaced{},
		),
		onNode("client-cert-expired", "the certificate of a node's agent has expired",
			func(n string) Fault { return ClientCertExpired{n} }),
		fixed("etcd-permission-removed", "agents may neither read nor write", EtcdPermissionRemoved{}),
		fixed("etcd-write-removed", "agents may read and not write", EtcdPermissionRemoved{KeepRead: true}),
	}
}

func ofKeys() []Entry {
	return []Entry{
		{ID: "lease-expire", About: "an agent is paused until its lease has expired",
			Args: map[string]string{"within": "1m"}, make: func(p place) (Fault, error) {
				within, err := p.duration("within")
				return Several{"lease of " + p.node + " expired under a paused agent",
					[]Fault{AgentPause{p.node}, LeaseExpire{p.node, within}}}, err
			}},
		onNode("lease-revoke", "the etcd lease of a node's subnet is revoked",
			func(n string) Fault { return LeaseRevoked{n} }),
		onNode(
			"lease-delete",
			"the key of a node's lease is deleted",
			func(n string) Fault { return LeaseDeleted{n} },
		),
		onNode("lease-overwrite", "nonsense without TTL is written over a node's lease",
			func(n string) Fault { return LeaseOverwritten{n} }),
		{ID: "subnet-taken", About: "a node's subnet is given to another while it is cut off", Lasting: true,
			make: func(p place) (Fault, error) {
				return Several{"subnet of " + p.node + " lost to " + p.other(), []Fault{
					// The taker comes up as a node that never had a subnet of its own.
					AgentStop{p.other()}, LeaseRevoked{p.other()}, StateLost{p.other()},
					CutFromEtcd{p.node}, LeaseRevoked{p.node}, SubnetTaken{p.node, p.other()},
				}}, nil
			}},
		{ID: "key-delete", About: "a key under the overlay's prefix is deleted",
			Args: map[string]string{"key": "config"}, Lasting: true, make: func(p place) (Fault, error) {
				return KeyDeleted{p.args["key"]}, nil
			}},
		{ID: "key-put", About: "nonsense is put under the overlay's prefix",
			Args: map[string]string{"key": "subnets/nonsense", "value": "{"}, make: func(p place) (Fault, error) {
				return KeysPut{"nonsense at " + p.args["key"], map[string]string{p.args["key"]: p.args["value"]}}, nil
			}},
	}
}

func ofAgents() []Entry {
	return []Entry{
		onNode("agent-kill", "an agent is killed", func(n string) Fault { return AgentKill{n} }),
		onNode("agent-stop", "an agent ends by SIGTERM", func(n string) Fault { return AgentStop{n} }),
		onNode("agent-pause", "an agent stops as it is", func(n string) Fault { return AgentPause{n} }),
		onNode("agent-restart", "an agent ends by SIGTERM and another starts",
			func(n string) Fault { return AgentRestart{n} }),
		{
			ID:    "agent-crash-loop",
			About: "an agent is killed again and again",
			Args:  map[string]string{"every": "300ms"},
			make: func(p place) (Fault, error) {
				every, err := p.duration("every")
				return AgentCrashLoop{p.node, every}, err
			},
		},
		{ID: "agent-replaced", About: "an agent is replaced by another binary, a copy unless told which",
			Args: map[string]string{"path": ""}, make: func(p place) (Fault, error) {
				return AgentReplaced{p.node, p.args["path"]}, nil
			}},
		{ID: "agent-flags", About: "an agent is started with other flags",
			Args: map[string]string{"flags": "--log-level=debug"}, make: func(p place) (Fault, error) {
				return AgentFlags{p.node, strings.Fields(p.args["flags"])}, nil
			}},
		onNode(
			"agent-starved",
			"an agent gets next to no processor time",
			func(n string) Fault { return AgentStarved{n} },
		),
		onNode(
			"agent-out-of-files",
			"an agent can open nothing more",
			func(n string) Fault { return AgentOutOfFiles{n} },
		),
	}
}

func ofDisks() []Entry {
	return []Entry{
		onNode(
			"run-full",
			"there is no room where the subnet file is",
			func(n string) Fault { return RunFull{n} },
		),
		onNode(
			"state-read-only",
			"an agent's state folder is read-only",
			func(n string) Fault { return StateReadOnly{n} },
		),
		inWorld("subnet-file-truncated", "the subnet file is cut to nothing",
			func(w World, n string) Fault { return SubnetFileTruncated(w, n) }),
		{ID: "file-delete", About: "a file on a node is deleted; the subnet file unless told which",
			Args: map[string]string{"path": ""}, Lasting: true, make: func(p place) (Fault, error) {
				path := p.args["path"]
				if path == "" {
					path = p.w.SubnetFile()
				}
				return FileDeleted{p.node, path}, nil
			}},
		inWorld("state-truncated", "an agent's state is cut to nothing",
			func(w World, n string) Fault { return StateTruncated(w, n) }),
		{ID: "state-lost", About: "all that an agent keeps is deleted while it runs", Lasting: true,
			make: func(p place) (Fault, error) { return StateLost{p.node}, nil }},
		onNode("cni-cache-truncated", "what CNI keeps of each pod is cut to nothing",
			func(n string) Fault { return CNICacheTruncated(n) }),
	}
}

func ofPods() []Entry {
	return []Entry{
		onNode(
			"pods-vanish",
			"the pods of a node are gone without DEL",
			func(n string) Fault { return PodsVanished{n} },
		),
		onNode("del-without-delegate", "DEL of a pod while the delegate is missing",
			func(n string) Fault { return DelWithoutDelegate{n} }),
		{ID: "add-storm", About: "many pods at once on a node", Args: map[string]string{"pods": "8"},
			make: func(p place) (Fault, error) {
				n, err := p.number("pods")
				return AddStorm{p.node, n}, err
			}},
	}
}

// Several is faults one after another under one name, the later ones needing those before.
type Several struct {
	What   string
	Faults []Fault
}

// Name implements Fault.
func (f Several) Name() string { return f.What }

// Available implements Limited: each of them must be.
func (f Several) Available(w World) error {
	for _, g := range f.Faults {
		if l, ok := g.(Limited); ok {
			if err := l.Available(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// Inject implements Fault. Each is proved before the next; their heals go by the name of the whole.
func (f Several) Inject(ctx context.Context, w World) error {
	for _, g := range f.Faults {
		if err := g.Inject(ctx, renamed{w, f.What}); err != nil {
			return fmt.Errorf("%s: %w", g.Name(), err)
		}
	}
	return nil
}

// renamed registers heals under another name.
type renamed struct {
	World
	name string
}

// OnHeal implements World.
func (r renamed) OnHeal(_ string, heal func(context.Context) error) { r.World.OnHeal(r.name, heal) }

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
