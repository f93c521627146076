package fault

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

func ofNodes() []Entry {
	share := func(id, about, by string, of func(node string, share float64) BadCable) Entry {
		return Entry{
			ID:    id,
			About: about,
			Args:  map[string]string{"share": by},
			make: func(p place) (Fault, error) {
				s, err := p.share("share")
				return of(p.node, s), err
			},
		}
	}
	return []Entry{
		onNode("node-reboot", "a node is switched off and on", func(n string) Fault { return NodeReboot{n} }),
		onNode("node-power-off", "a node is switched off", func(n string) Fault { return NodePowerOff{n} }),
		onNode("uplink-down", "a node's cable is pulled", func(n string) Fault { return UplinkDown{n} }),
		onNode("uplink-replaced", "a node gets another uplink with the same address",
			func(n string) Fault { return UplinkReplaced{n} }),
		{ID: "uplink-readdressed", About: "a node's uplink gets another address, a free one unless told which",
			Args: map[string]string{"address": ""}, make: func(p place) (Fault, error) {
				if p.args["address"] == "" {
					return UplinkReaddressed{p.node, unused(p.w)}, nil
				}
				addr, err := netip.ParsePrefix(p.args["address"])
				return UplinkReaddressed{p.node, addr}, err
			}},
		onNode("etcd-cut", "a node hears nothing of etcd", func(n string) Fault { return CutFromEtcd{n} }),
		onNode("etcd-reset", "a node's connections to etcd are reset and new ones refused",
			func(n string) Fault { return EtcdReset{n} }),
		onNode("etcd-black-hole", "a node can connect to etcd, and nothing passes after it",
			func(n string) Fault { return EtcdBlackHole{n} }),
		inWorld("partition-node", "a node is cut off from all others and etcd",
			func(w World, n string) Fault { return Isolated(w, n) }),
		inWorld("partition-one-way", "nobody hears a node, which hears all",
			func(w World, n string) Fault { return Deaf(w, n) }),
		inWorld("partition-halves", "the nodes are cut into halves; etcd stays with the first",
			func(w World, _ string) Fault { return Halves(w) }),
		inWorld("partition-ring", "each node hears its two neighbours only",
			func(w World, _ string) Fault { return Ring(w) }),
		{
			ID:    "mtu-black-hole",
			About: "long packets are swallowed at a node",
			Args:  map[string]string{"size": "1400"},
			make: func(p place) (Fault, error) {
				size, err := p.number("size")
				return MTUBlackHole{p.node, size}, err
			},
		},
		share("packet-loss", "packets of a node are lost", "20", PacketLoss),
		{ID: "packet-delay", About: "packets of a node are late",
			Args: map[string]string{"by": "50ms", "jitter": "10ms"}, make: func(p place) (Fault, error) {
				by, err := p.duration("by")
				if err != nil {
					return nil, err
				}
				jitter, err := p.duration("jitter")
				return PacketDelay(p.node, by, jitter), err
			}},
		{ID: "packet-reorder", About: "packets of a node overtake each other",
			Args: map[string]string{"share": "25", "by": "10ms"}, make: func(p place) (Fault, error) {
				by, err := p.duration("by")
				if err != nil {
					return nil, err
				}
				s, err := p.share("share")
				return PacketReorder(p.node, s, by), err
			}},
		share("packet-duplicate", "packets of a node arrive twice", "20", PacketDuplicate),
		share("packet-corrupt", "packets of a node have a bit flipped", "20", PacketCorrupt),
		{
			ID:    "rate-limit",
			About: "so many bits a second pass a node's uplink",
			Args:  map[string]string{"bits": "1000000"},
			make: func(p place) (Fault, error) {
				bits, err := strconv.ParseInt(p.args["bits"], 10, 64)
				if err != nil || bits < 8 {
					return nil, fmt.Errorf("bits is a number of bits a second: %q (%w)", p.args["bits"], err)
				}
				return RateLimit(p.node, bits), nil
			},
		},
	}
}

func ofKernels() []Entry {
	tamper := func(id, about string, what Tampering) Entry {
		return onNode(id, about, func(n string) Fault { return Tamper{n, what} })
	}
	return []Entry{
		tamper("device-delete", "the overlay's device is deleted", DeviceDeleted),
		tamper("device-down", "the overlay's device is brought down", DeviceDown),
		tamper("device-mac", "the overlay's device gets another MAC", DeviceMACChanged),
		tamper("device-mtu", "the overlay's device gets another MTU", DeviceMTUChanged),
		tamper("routes-delete", "the routes to peers are deleted", RoutesDeleted),
		tamper("routes-change", "the routes to peers lead out of the uplink", RoutesChanged),
		tamper("neighbours-delete", "the peers' neighbour entries are deleted", NeighboursDeleted),
		tamper("neighbours-change", "the peers' neighbour entries get another MAC", NeighboursChanged),
		tamper("fdb-delete", "the peers' forwarding entries are deleted", FDBDeleted),
		tamper("fdb-change", "the peers' forwarding entries lead to nobody", FDBChanged),
		tamper("rules-flush", "all nftables rules are flushed", RulesFlushed),
		tamper("forward-drop", "policy DROP in iptables' FORWARD", ForwardDrop),
		tamper("forward-reject", "a catch-all REJECT in iptables' FORWARD", ForwardReject),
		tamper("ip-forward-off", "ip_forward is set to 0", ForwardingOff),
		tamper("rp-filter", "rp_filter is set to 1", ReversePathStrict),
		inWorld("neighbours-age", "neighbour entries age within seconds on every node",
			func(w World, _ string) Fault { return AgeNeighbours{slices.Clone(w.Nodes())} }),
		onNode(
			"bridge-readdress",
			"cni0 gets another address",
			func(n string) Fault { return BridgeReaddressed{n} },
		),
		onNode("bridge-delete", "cni0 is deleted", func(n string) Fault { return BridgeDeleted{n} }),
	}
}
