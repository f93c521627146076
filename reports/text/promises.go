package text

import (
	"regexp"
	"slices"
	"sync"
)

// Components that a fault can be of, in the order of the table.
const (
	ofEtcd   = "etcd"
	ofAgent  = "agent"
	ofNode   = "node"
	ofKernel = "kernel"
	ofDisk   = "disk"
	ofCNI    = "CNI"
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

// promise is what the overlay says of a fault: its id in the catalogue of faults, the component that it
// breaks, how it is called in a record, and what should be felt.
type promise struct {
	id, component string
	name          *regexp.Regexp
	promised      string
}

// Faults lists the ids of the faults for which there is a promise, in the order of the table.
func Faults() []string {
	var ids []string
	for _, p := range promises() {
		ids = append(ids, p.id)
	}
	return ids
}

// FaultID returns the id of a fault that a record knows by name, such as "etcd stopped"; "" if it has
// none, as one that a scenario made itself.
func FaultID(name string) string {
	all := promises()
	if i := slices.IndexFunc(all, func(p promise) bool { return p.name.MatchString(name) }); i >= 0 {
		return all[i].id
	}
	return ""
}

// promises is the table, compiled once. The names are those of package fault, whose catalogue a test
// compares with it.
var promises = sync.OnceValue(func() []promise {
	return slices.Concat(promisesOfEtcd(), promisesOfNodes(), promisesOfKernels(), promisesOfDisks())
})

func promised(component, id, name, what string) promise {
	return promise{id, component, regexp.MustCompile("^(?:" + name + ")$"), what}
}

func promisesOfEtcd() []promise {
	return []promise{
		promised(ofEtcd, "etcd-stop", "etcd stopped", idle),
		promised(ofEtcd, "etcd-kill", "etcd killed", idle),
		promised(ofEtcd, "etcd-pause", "etcd paused", idle),
		promised(ofEtcd, "etcd-wipe", "etcd emptied", relisted),
		promised(ofEtcd, "etcd-restore", "etcd restored from an older snapshot", relisted),
		promised(ofEtcd, "etcd-compact", "etcd compacted", relisted),
		promised(ofEtcd, "etcd-defragment", "etcd defragmented", idle),
		promised(ofEtcd, "etcd-leader-change", "etcd's leader changed", idle),
		promised(ofEtcd, "etcd-member-loss", "etcd lost its leading member", idle),
		promised(ofEtcd, "etcd-quorum-loss", "etcd lost its quorum", idle),
		promised(ofEtcd, "etcd-no-space", "etcd read-only by alarm NOSPACE", idle),
		promised(ofEtcd, "etcd-slow", "etcd slow", idle),
		promised(ofEtcd, "etcd-cert-expired", "etcd's certificate expired", idle),
		promised(ofEtcd, "etcd-cert-replaced", "etcd's certificate replaced by another authority's", idle),
		promised(ofEtcd, "client-cert-expired", "client certificate of .* expired", idle),
		promised(ofEtcd, "etcd-permission-removed", "permission removed at etcd", idle),
		promised(ofEtcd, "etcd-write-removed", "permission to write removed at etcd", idle),
		promised(ofEtcd, "lease-expire", "lease of .* expired(?: under a paused agent)?", sameLease),
		promised(ofEtcd, "lease-revoke", "lease of .* revoked", sameLease),
		promised(ofEtcd, "lease-delete", "lease key of .* deleted", sameLease),
		promised(ofEtcd, "lease-overwrite", "lease key of .* overwritten", sameLease),
		promised(ofEtcd, "subnet-taken", "subnet of .* (?:taken by|lost to) .*",
			"moves at once, loudly; new pods work; the new owner is not disturbed"),
		promised(ofEtcd, "key-delete", "key .* deleted", idle),
		promised(ofEtcd, "key-put", ".* put into etcd", "reported, counted, ignored; no packet lost"),
		promised(ofAgent, "agent-kill", "agent on .* killed", nothing),
		promised(ofAgent, "agent-stop", "agent on .* stopped", nothing),
		promised(ofAgent, "agent-pause", "agent on .* paused", nothing),
		promised(ofAgent, "agent-restart", "agent on .* restarted", nothing),
		promised(ofAgent, "agent-crash-loop", "agent on .* in a crash loop", nothing),
		promised(ofAgent, "agent-replaced", "agent on .* replaced by another binary", nothing),
		promised(ofAgent, "agent-flags", "agent on .* started with .*", nothing),
		promised(ofAgent, "agent-starved", "agent on .* starved of processor time", nothing),
		promised(ofAgent, "agent-out-of-files", "agent on .* out of file descriptors", nothing),
	}
}

func promisesOfNodes() []promise {
	return []promise{
		promised(ofNode, "node-reboot", ".* booted anew", "lost while it is away; same subnet, same VTEP MAC"),
		promised(
			ofNode,
			"node-power-off",
			".* switched off",
			"lost with that node only; same subnet when it is back",
		),
		promised(ofNode, "uplink-down", "uplink of .* down", cutOff),
		promised(
			ofNode,
			"uplink-replaced",
			"uplink of .* replaced",
			"the overlay is on the new uplink within seconds",
		),
		promised(ofNode, "uplink-readdressed", "uplink of .* has another address",
			"the new address is published; peers follow within seconds"),
		promised(ofNode, "etcd-cut", ".* cut off from etcd", idle),
		promised(ofNode, "etcd-reset", "connections of .* to etcd reset", idle),
		promised(ofNode, "etcd-black-hole", "connections of .* to etcd swallowed", idle),
		promised(ofNode, "partition-node", "partition: .* isolated", cutOff),
		promised(ofNode, "partition-one-way", "partition: .* not heard", cutOff),
		promised(ofNode, "partition-halves", "partition: nodes cut into halves", cutOff),
		promised(ofNode, "partition-ring", "partition: nodes cut into a ring", cutOff),
		promised(ofNode, "mtu-black-hole", "packets over .* bytes swallowed at .*", degraded),
		promised(ofNode, "packet-loss", ".* of packets lost at .*", degraded),
		promised(ofNode, "packet-delay", "packets delayed by .* at .*", degraded),
		promised(ofNode, "packet-reorder", ".* of packets reordered at .*", degraded),
		promised(ofNode, "packet-duplicate", ".* of packets duplicated at .*", degraded),
		promised(ofNode, "packet-corrupt", ".* of packets corrupted at .*", degraded),
		promised(ofNode, "rate-limit", "rate limited to .* at .*", degraded),
	}
}

func promisesOfKernels() []promise {
	return []promise{
		promised(ofKernel, "device-delete", "device deleted on .*", repaired),
		promised(ofKernel, "device-down", "device down on .*", repaired),
		promised(ofKernel, "device-mac", "device's MAC changed on .*", repaired),
		promised(ofKernel, "device-mtu", "device's MTU changed on .*", repaired),
		promised(ofKernel, "routes-delete", "routes deleted on .*", repaired),
		promised(ofKernel, "routes-change", "routes changed on .*", repaired),
		promised(ofKernel, "neighbours-delete", "neighbours deleted on .*", repaired),
		promised(ofKernel, "neighbours-change", "neighbours changed on .*", repaired),
		promised(ofKernel, "fdb-delete", "forwarding entries deleted on .*", repaired),
		promised(ofKernel, "fdb-change", "forwarding entries changed on .*", repaired),
		promised(ofKernel, "rules-flush", "all nftables rules flushed on .*", repaired),
		promised(
			ofKernel,
			"forward-drop",
			"FORWARD policy DROP on .*",
			"no packet lost: accepted before the policy",
		),
		promised(ofKernel, "forward-reject", "catch-all REJECT in FORWARD on .*",
			"no packet lost where accepted before; else reported"),
		promised(ofKernel, "ip-forward-off", "ip_forward set to 0 on .*", repaired),
		promised(ofKernel, "rp-filter", "rp_filter set to 1 on .*", "no packet lost"),
		promised(
			ofKernel,
			"neighbours-age",
			"neighbour entries aged on .*",
			"no packet lost: entries are permanent",
		),
		promised(
			ofKernel,
			"bridge-readdress",
			"cni0 of .* has another address",
			"reported; new pods fail loudly or work",
		),
		promised(ofKernel, "bridge-delete", "cni0 of .* deleted", "new pods work; the old ones are cut off"),
	}
}

func promisesOfDisks() []promise {
	return []promise{
		promised(ofDisk, "run-full", "/run of .* full", kept),
		promised(ofDisk, "state-read-only", "state folder of .* read-only", kept),
		promised(ofDisk, "subnet-file-truncated", "subnet file of .* truncated", "written again; new pods work"),
		promised(ofDisk, "file-delete", ".* deleted on .*", "the subnet file is written again; new pods work"),
		promised(ofDisk, "state-truncated", "agent's state of .* truncated", kept),
		promised(
			ofDisk,
			"state-lost",
			"agent's state of .* lost",
			"no packet lost; what the lease and subnet.env tell is taken over",
		),
		promised(ofCNI, "cni-cache-truncated", "CNI cache of .* truncated", "DEL succeeds and leaves nothing"),
		promised(
			ofCNI,
			"pods-vanish",
			"pods on .* vanished without DEL",
			"GC frees what they held; new pods work",
		),
		promised(ofCNI, "del-without-delegate", "CNI DEL on .* without the delegate",
			"fails, keeps what the next DEL needs"),
		promised(ofCNI, "add-storm", ".* pods at once on .*", "every pod works, no address twice"),
	}
}
