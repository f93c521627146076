package fault

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

func ofNodes() []Entry {
	share := func(id, about, by string, f func(node string, share float64) BadCable) Entry {
		return Entry{
			ID: id, About: about, Promise: degraded, Params: map[string]string{"share": by},
			Make: func(p Place) (Fault, error) {
				s, err := p.Share("share")
				return f(p.Node, s), err
			},
		}
	}
	return of(
		ComponentNode,
		onNode("node-reboot", "a node is switched off and on", "lost while it is away; same subnet, same VTEP MAC",
			func(n string) Fault { return NodeReboot{n} }),
		onNode("node-power-off", "a node is switched off", "lost with that node only; same subnet when it is back",
			func(n string) Fault { return NodePowerOff{n} }),
		onNode("uplink-down", "a node's cable is pulled", cutOff, func(n string) Fault { return UplinkDown{n} }),
		onNode("uplink-replaced", "a node gets another uplink with the same address",
			"the overlay is on the new uplink within seconds", func(n string) Fault { return UplinkReplaced{n} }),
		Entry{
			ID: "uplink-readdressed", About: "a node's uplink gets another address, a free one unless told which",
			Promise: "the new address is published; peers follow within seconds",
			Params:  map[string]string{"address": ""},
			Make: func(p Place) (Fault, error) {
				if p.Params["address"] == "" {
					return UplinkReaddressed{p.Node, unused(p.World)}, nil
				}
				addr, err := netip.ParsePrefix(p.Params["address"])
				return UplinkReaddressed{p.Node, addr}, err
			},
		},
		onNode("etcd-cut", "a node hears nothing of etcd", idle, func(n string) Fault { return CutFromEtcd{n} }),
		onNode("etcd-reset", "a node's connections to etcd are reset and new ones refused", idle,
			func(n string) Fault { return EtcdReset{n} }),
		onNode("etcd-black-hole", "a node can connect to etcd, and nothing passes after it", idle,
			func(n string) Fault { return EtcdBlackHole{n} }),
		inWorld("partition-node", "a node is cut off from all others and etcd", cutOff,
			func(w World, n string) Fault { return Isolated(w, n) }),
		inWorld("partition-one-way", "nobody hears a node, which hears all", cutOff,
			func(w World, n string) Fault { return Deaf(w, n) }),
		inWorld("partition-halves", "the nodes are cut into halves; etcd stays with the first", cutOff,
			func(w World, _ string) Fault { return Halves(w) }),
		inWorld("partition-ring", "each node hears its two neighbours only", cutOff,
			func(w World, _ string) Fault { return Ring(w) }),
		Entry{
			ID: "mtu-black-hole", About: "long packets are swallowed at a node", Promise: degraded,
			Params: map[string]string{"size": "1400"},
			Make: func(p Place) (Fault, error) {
				size, err := p.Number("size")
				return MTUBlackHole{p.Node, size}, err
			},
		},
		share("packet-loss", "packets of a node are lost", "20", PacketLoss),
		Entry{
			ID: "packet-delay", About: "packets of a node are late", Promise: degraded,
			Params: map[string]string{"by": "50ms", "jitter": "10ms"},
			Make: func(p Place) (Fault, error) {
				by, err := p.Duration("by")
				if err != nil {
					return nil, err
				}
				jitter, err := p.Duration("jitter")
				return PacketDelay(p.Node, by, jitter), err
			},
		},
		Entry{
			ID: "packet-reorder", About: "packets of a node overtake each other", Promise: degraded,
			Params: map[string]string{"share": "25", "by": "10ms"},
			Make: func(p Place) (Fault, error) {
				by, err := p.Duration("by")
				if err != nil {
					return nil, err
				}
				s, err := p.Share("share")
				return PacketReorder(p.Node, s, by), err
			},
		},
		share("packet-duplicate", "packets of a node arrive twice", "20", PacketDuplicate),
		share("packet-corrupt", "packets of a node have a bit flipped", "20", PacketCorrupt),
		Entry{
			ID: "rate-limit", About: "so many bits a second pass a node's uplink", Promise: degraded,
			Params: map[string]string{"bits": "1000000"},
			Make: func(p Place) (Fault, error) {
				bits, err := strconv.ParseInt(p.Params["bits"], 10, 64)
				if err != nil || bits < 8 {
					return nil, fmt.Errorf("bits is a number of bits a second: %q (%w)", p.Params["bits"], err)
				}
				return RateLimit(p.Node, bits), nil
			},
		},
	)
}

func ofKernels() []Entry {
	tamper := func(about, promise string, what Tampering) Entry {
		return onNode(what.id, about, promise, func(n string) Fault { return Tamper{n, what} })
	}
	return of(
		ComponentKernel,
		tamper("the overlay's device is deleted", repaired, DeviceDeleted),
		tamper("the overlay's device is brought down", repaired, DeviceDown),
		tamper("the overlay's device gets another MAC", repaired, DeviceMACChanged),
		tamper("the overlay's device gets another MTU", repaired, DeviceMTUChanged),
		tamper("the routes to peers are deleted", repaired, RoutesDeleted),
		tamper("the routes to peers lead out of the uplink", repaired, RoutesChanged),
		tamper("the peers' neighbour entries are deleted", repaired, NeighboursDeleted),
		tamper("the peers' neighbour entries get another MAC", repaired, NeighboursChanged),
		tamper("the peers' forwarding entries are deleted", repaired, FDBDeleted),
		tamper("the peers' forwarding entries lead to nobody", repaired, FDBChanged),
		tamper("all nftables rules are flushed", repaired, RulesFlushed),
		tamper("policy DROP in iptables' FORWARD", "no packet lost: accepted before the policy", ForwardDrop),
		tamper("a catch-all REJECT in iptables' FORWARD", "no packet lost where accepted before; else reported",
			ForwardReject),
		tamper("ip_forward is set to 0", repaired, ForwardingOff),
		tamper("rp_filter is set to 1", "no packet lost", ReversePathStrict),
		inWorld("neighbours-age", "neighbour entries age within seconds on every node",
			"no packet lost: entries are permanent",
			func(w World, _ string) Fault { return AgeNeighbours{slices.Clone(w.Nodes())} }),
		onNode("bridge-readdress", "cni0 gets another address", "reported; new pods fail loudly or work",
			func(n string) Fault { return BridgeReaddressed{n} }),
		onNode("bridge-delete", "cni0 is deleted", "new pods work; the old ones are cut off",
			func(n string) Fault { return BridgeDeleted{n} }),
	)
}
