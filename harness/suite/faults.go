package suite

import (
	"time"

	"github.com/nemesh/nemesh/harness/fault"
)

// The faults, by what they break. nemesh list faults shows each with its parameters and what the overlay
// promises of it.
type (
	// AddStorm makes many pods at once on one node.
	AddStorm = fault.AddStorm
	// AgeNeighbours makes the neighbour entries of the overlay's devices age within seconds instead of
	// minutes, by the neighbour sysctls of the device (Documentation/networking/ip-sysctl.rst), which is what
	// waiting would do.
	AgeNeighbours = fault.AgeNeighbours
	// AgentCrashLoop kills a node's agent with SIGKILL, starts it, and kills it again after a while, until it
	// is healed.
	AgentCrashLoop = fault.AgentCrashLoop
	// AgentFlags ends a node's agent with SIGTERM and starts it with more flags, which win over those before.
	AgentFlags = fault.AgentFlags
	// AgentKill ends a node's agent with SIGKILL; the heal starts one.
	AgentKill = fault.AgentKill
	// AgentOutOfFiles leaves a node's agent no file descriptor: the limit is lowered under those that it has
	// (setrlimit(2), RLIMIT_NOFILE), so that what is open stays open and nothing more can be opened.
	AgentOutOfFiles = fault.AgentOutOfFiles
	// AgentPause stops a node's agent as it is (SIGSTOP).
	AgentPause = fault.AgentPause
	// AgentReplaced ends a node's agent with SIGTERM and starts another program in its place, with the same
	// flags, as an upgrade or a wrong image does.
	AgentReplaced = fault.AgentReplaced
	// AgentRestart ends a node's agent with SIGTERM and starts it again, as an upgrade does.
	AgentRestart = fault.AgentRestart
	// AgentStarved leaves a node's agent next to no processor time: it is stopped and let go on in turns.
	AgentStarved = fault.AgentStarved
	// AgentStop ends a node's agent with SIGTERM; the heal starts one.
	AgentStop = fault.AgentStop
	// BadCable does to every frame from and to a node what the impairment says, until it is healed.
	BadCable = fault.BadCable
	// BridgeDeleted deletes a node's cni0: its pods are cut off.
	BridgeDeleted = fault.BridgeDeleted
	// BridgeReaddressed gives a node's cni0 another address than its subnet's first, as a subnet of before
	// does (`"cni0" already has an IP address different from …`).
	BridgeReaddressed = fault.BridgeReaddressed
	// ClientCertExpired replaces the certificate of a node's agent by one that has expired and has etcd
	// restarted, so that the agent must show it.
	ClientCertExpired = fault.ClientCertExpired
	// ConfigChanged puts another network configuration in place of the one in etcd.
	ConfigChanged = fault.ConfigChanged
	// CutFromEtcd drops every frame between a node and etcd, both ways: nothing is refused, nothing is heard.
	CutFromEtcd = fault.CutFromEtcd
	// DelWithoutDelegate runs CNI DEL of a node's first pod while the plugin that it delegates to is missing,
	// as in the middle of an upgrade of the plugins.
	DelWithoutDelegate = fault.DelWithoutDelegate
	// Done is anything done on one machine, for what only one scenario breaks.
	Done = fault.Done
	// EtcdBlackHole swallows what a node and etcd say to each other once they are connected: connecting works,
	// and nothing after it, on connections old and new.
	EtcdBlackHole = fault.EtcdBlackHole
	// EtcdCertExpired has etcd present a certificate that has expired.
	EtcdCertExpired = fault.EtcdCertExpired
	// EtcdCertReplaced has etcd present a certificate of another authority, which no agent trusts.
	EtcdCertReplaced = fault.EtcdCertReplaced
	// EtcdCompacted discards etcd's history up to now, so that a watch that fell behind cannot go on.
	EtcdCompacted = fault.EtcdCompacted
	// EtcdDefragmented gives the space of discarded revisions back; etcd does not answer meanwhile.
	EtcdDefragmented = fault.EtcdDefragmented
	// EtcdKill ends etcd with SIGKILL; the heal starts it on its data.
	EtcdKill = fault.EtcdKill
	// EtcdLeaderMoved has etcd's leader hand over to another member.
	EtcdLeaderMoved = fault.EtcdLeaderMoved
	// EtcdMemberLost kills one member of etcd, its leader.
	EtcdMemberLost = fault.EtcdMemberLost
	// EtcdNoSpace raises the alarm of a full disk: etcd answers reads, and refuses what takes space.
	EtcdNoSpace = fault.EtcdNoSpace
	// EtcdPause stops the server as it is (SIGSTOP): connections stay open and nothing answers.
	EtcdPause = fault.EtcdPause
	// EtcdPermissionRemoved takes away what agents may do with the overlay's keys.
	EtcdPermissionRemoved = fault.EtcdPermissionRemoved
	// EtcdQuorumLost kills all members of etcd but one.
	EtcdQuorumLost = fault.EtcdQuorumLost
	// EtcdReset ends a node's connections to etcd, and with them its watches, and refuses new ones until it is
	// healed.
	EtcdReset = fault.EtcdReset
	// EtcdRestored ends etcd and puts an older copy of its data in place (etcd.Member.Save), so that its
	// revision goes backwards.
	EtcdRestored = fault.EtcdRestored
	// EtcdSlow delays every request to etcd and every answer; what members say to each other is not delayed.
	EtcdSlow = fault.EtcdSlow
	// EtcdStop ends etcd as an operator would.
	EtcdStop = fault.EtcdStop
	// EtcdWipe ends etcd and deletes its data.
	EtcdWipe = fault.EtcdWipe
	// FileDeleted deletes a file on a node.
	FileDeleted = fault.FileDeleted
	// FilesTruncated cuts files on a node to nothing, as a crash between creating and writing does.
	FilesTruncated = fault.FilesTruncated
	// KeyDeleted deletes one key under the overlay's prefix, such as "owners/10.5.3.0-24".
	KeyDeleted = fault.KeyDeleted
	// KeysPut puts keys under the overlay's prefix, such as "subnets/hello"; the heal deletes them.
	KeysPut = fault.KeysPut
	// LeaseDeleted deletes the key of a node's lease.
	LeaseDeleted = fault.LeaseDeleted
	// LeaseExpire waits until a node's lease has really expired.
	LeaseExpire = fault.LeaseExpire
	// LeaseOverwritten writes nonsense over a node's lease, by hand and without TTL.
	LeaseOverwritten = fault.LeaseOverwritten
	// LeaseRevoked revokes the etcd lease that a node's subnet hangs on, as an operator or an expiry does.
	LeaseRevoked = fault.LeaseRevoked
	// MTUBlackHole swallows packets from and to a node that are longer than Size bytes, without the ICMP
	// message that would say so (RFC 2923, 2.1).
	MTUBlackHole = fault.MTUBlackHole
	// NodePowerOff switches a node off: processes, pods, links and /run are gone, its disk is kept.
	NodePowerOff = fault.NodePowerOff
	// NodeReboot switches a node off and on.
	NodeReboot = fault.NodeReboot
	// Partition has the switch drop every frame between some machines: nothing is refused, nothing is heard.
	Partition = fault.Partition
	// PodsVanished takes the network namespaces of a node's pods away without CNI DEL, as kill -9 of
	// everything does.
	PodsVanished = fault.PodsVanished
	// RunFull fills up the part of a node's /run in which the agent leaves its subnet file: a small tmpfs with
	// what is there is laid over it and filled to the last byte.
	RunFull = fault.RunFull
	// Several is faults one after another under one name, the later ones needing those before.
	Several = fault.Several
	// StateLost deletes all that a node's agent keeps over restarts, as a disk that was replaced has lost it.
	StateLost = fault.StateLost
	// StateReadOnly makes the folder in which a node's agent keeps its state read-only, as a kernel does with
	// a disk that fails.
	StateReadOnly = fault.StateReadOnly
	// SubnetTaken gives the subnet that a node had to another node, which comes up believing that it is its
	// own: what happens when an allocator has given a subnet away, or a disk was cloned.
	SubnetTaken = fault.SubnetTaken
	// Tamper changes one thing in a node's kernel behind the agent's back.
	Tamper = fault.Tamper
	// UplinkDown pulls a node's cable at the switch: the node sees its carrier go and keeps addresses and
	// routes.
	UplinkDown = fault.UplinkDown
	// UplinkReaddressed gives a node's uplink another address, as a DHCP server may.
	UplinkReaddressed = fault.UplinkReaddressed
	// UplinkReplaced takes a node's uplink away and gives it another one with the same name and address: a new
	// index, a new MAC, and everything that hung on the old one is gone.
	UplinkReplaced = fault.UplinkReplaced
)

// Tampering is what Tamper does to a kernel.
type Tampering = fault.Tampering

// PacketLoss loses a share of the frames, 0 to 1.
func PacketLoss(node string, share float64) BadCable { return fault.PacketLoss(node, share) }

// PacketDelay holds every frame back, each way, by jitter more or less.
func PacketDelay(node string, by, jitter time.Duration) BadCable {
	return fault.PacketDelay(node, by, jitter)
}

// PacketReorder holds frames back except for a share, which overtakes the others.
func PacketReorder(node string, share float64, by time.Duration) BadCable {
	return fault.PacketReorder(node, share, by)
}

// PacketDuplicate has a share of the frames arrive twice.
func PacketDuplicate(node string, share float64) BadCable { return fault.PacketDuplicate(node, share) }

// PacketCorrupt flips a bit in a share of the frames.
func PacketCorrupt(node string, share float64) BadCable { return fault.PacketCorrupt(node, share) }

// RateLimit lets so many bits a second pass, each way.
func RateLimit(node string, bits int64) BadCable { return fault.RateLimit(node, bits) }

// SubnetFileTruncated cuts the file that the agent leaves for CNI.
func SubnetFileTruncated(w World, node string) FilesTruncated {
	return fault.SubnetFileTruncated(w, node)
}

// StateTruncated cuts all that the agent keeps.
func StateTruncated(w World, node string) FilesTruncated { return fault.StateTruncated(w, node) }

// CNICacheTruncated cuts what the CNI plugin and libcni keep of each pod.
func CNICacheTruncated(node string) FilesTruncated { return fault.CNICacheTruncated(node) }

// Isolated cuts a node off from every other node, and from etcd's members.
func Isolated(w World, node string) Partition { return fault.Isolated(w, node) }

// Deaf cuts one way: others do not hear a node, which hears them.
func Deaf(w World, node string) Partition { return fault.Deaf(w, node) }

// Halves cuts the nodes into two halves; etcd stays with the first.
func Halves(w World) Partition { return fault.Halves(w) }

// Ring leaves each node its two neighbours in the order of names, the last being the first one's; etcd is
// heard by all.
func Ring(w World) Partition { return fault.Ring(w) }

// The kinds of Tampering.
var (
	DeviceDeleted     = fault.DeviceDeleted
	DeviceDown        = fault.DeviceDown
	DeviceMACChanged  = fault.DeviceMACChanged
	DeviceMTUChanged  = fault.DeviceMTUChanged
	RoutesDeleted     = fault.RoutesDeleted
	RoutesChanged     = fault.RoutesChanged
	NeighboursDeleted = fault.NeighboursDeleted
	NeighboursChanged = fault.NeighboursChanged
	FDBDeleted        = fault.FDBDeleted
	FDBChanged        = fault.FDBChanged
	RulesFlushed      = fault.RulesFlushed
	ForwardingOff     = fault.ForwardingOff
	ForwardDrop       = fault.ForwardDrop
	ForwardReject     = fault.ForwardReject
	ReversePathStrict = fault.ReversePathStrict
)
