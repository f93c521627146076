package follow

// Cause says why a packet was lost. Its values are stable: scripts and records may rely on them.
type Cause string

// Causes. The comment of each is what must be true for it to be named.
const (
	// Delivered: the echo was answered.
	Delivered Cause = "delivered"

	// NoRoute: the node has no route to the other's subnet, or only the default route.
	NoRoute Cause = "no-route"
	// WrongDevice: the node's route for the other's subnet points elsewhere than into the overlay.
	WrongDevice Cause = "route-to-wrong-device"
	// BlackholeRoute, UnreachableRoute and ProhibitRoute: the route is of that type (ip-route(8)).
	BlackholeRoute   Cause = "blackhole-route"
	UnreachableRoute Cause = "unreachable-route"
	ProhibitRoute    Cause = "prohibit-route"
	// OwnSubnetTunnelled: the node that has the subnet routes it into the tunnel.
	OwnSubnetTunnelled Cause = "own-subnet-into-tunnel"
	// RoutingLoop: the packet came round again until its TTL ended.
	RoutingLoop Cause = "routing-loop"

	// VXLANMissing and VXLANDown: the overlay's device is not there, or not up.
	VXLANMissing Cause = "vxlan-device-missing"
	VXLANDown    Cause = "vxlan-device-down"
	// VNIMismatch and PortMismatch: the ends of the tunnel do not agree.
	VNIMismatch  Cause = "vni-mismatch"
	PortMismatch Cause = "vxlan-port-mismatch"
	// NeighbourUnresolved: no MAC is known for the other end of the tunnel, and nobody answers for it.
	NeighbourUnresolved Cause = "tunnel-neighbour-unresolved"
	// NeighbourWrongMAC: the entry has a MAC that is not that of the other end's device.
	NeighbourWrongMAC Cause = "tunnel-neighbour-wrong-mac"
	// VTEPMACChanged: the entry has the MAC that was published, and the device has another one.
	VTEPMACChanged Cause = "vxlan-device-mac-changed"
	// FDBMissing: no forwarding entry for the MAC.
	FDBMissing Cause = "fdb-entry-missing"
	// FDBWrongAddress: the forwarding entry's address is no node's.
	FDBWrongAddress Cause = "fdb-entry-to-wrong-address"
	// StaleOwner: it was sent to a node that does not own the subnet.
	StaleOwner Cause = "sent-to-former-owner"

	// UplinkDown, UplinkNoCarrier: the uplink is down, or its cable is pulled.
	UplinkDown      Cause = "uplink-down"
	UplinkNoCarrier Cause = "uplink-without-carrier"
	// UnderlayNoRoute: the node has no route to the other node.
	UnderlayNoRoute Cause = "no-underlay-route"
	// UnderlayCut: the switch drops what one node sends to the other.
	UnderlayCut Cause = "underlay-cut"
	// UnderlayUnanswered: the other node does not answer on the underlay.
	UnderlayUnanswered Cause = "underlay-neighbour-unresolved"

	// RuleDropped and RuleRejected: a rule or a chain's policy ended it.
	RuleDropped  Cause = "dropped-by-rule"
	RuleRejected Cause = "rejected-by-rule"
	// ForwardingOff: the node does not forward.
	ForwardingOff Cause = "ip-forward-off"
	// RPFilter: strict reverse path filtering (RFC 3704) refuses the source.
	RPFilter Cause = "rp-filter"
	// SourceRewritten: the source was translated to an address that the reply cannot come back from.
	SourceRewritten Cause = "source-rewritten"

	// PodLinkMissing, PodLinkDown: the pod has no link, or it is down.
	PodLinkMissing Cause = "pod-link-missing"
	PodLinkDown    Cause = "pod-link-down"
	// PodNoRoute: the pod has no route to the other one.
	PodNoRoute Cause = "pod-without-route"
	// VethDetached, VethDown: the pod's veth is not on the bridge, or down.
	VethDetached Cause = "veth-detached-from-bridge"
	VethDown     Cause = "veth-down"
	// BridgeMissing, BridgeDown: the node's bridge is not there, or not up.
	BridgeMissing Cause = "bridge-missing"
	BridgeDown    Cause = "bridge-down"
	// GatewayMissing: the bridge lacks the address that the pod sends to.
	GatewayMissing Cause = "gateway-address-missing"
	// PodAddressMissing: the pod does not have the address, and nobody answers for it.
	PodAddressMissing Cause = "pod-address-missing"
	// PodUnanswered: the pod has its address and does not answer for it.
	PodUnanswered Cause = "pod-neighbour-unresolved"
	// EchoRefused: the destination ignores echoes.
	EchoRefused Cause = "echo-ignored"

	// PacketTooBig: larger than the MTU of a device on the way, and somebody said so.
	PacketTooBig Cause = "larger-than-mtu"
	// MTUBlackHole: larger than the MTU of a device on the way, and nobody said so.
	MTUBlackHole Cause = "mtu-black-hole"

	// Unexplained: it is known where the packet was seen last, but not why it went no further.
	Unexplained Cause = "unexplained"
)
