package cluster

import (
	"cmp"
	"os"
)

// The environment variables that change every cluster of a suite that is started without flags.
const (
	// BackendEnv is what Options.Backend is where a scenario does not say.
	BackendEnv = "NEMESH_BACKEND"
	// RulesEnv is "nftables" to set Options.NFTables.
	RulesEnv = "NEMESH_RULES"
	// EtcdBinaryEnv is what Options.EtcdBinary is.
	EtcdBinaryEnv = "NEMESH_ETCD_BIN"
)

// RulesNFTables is the value of RulesEnv that asks for nftables; any other leaves the agents' default.
const RulesNFTables = "nftables"

// WithEnv fills what options leave open from the environment.
func (o Options) WithEnv() Options {
	o.Backend = cmp.Or(o.Backend, os.Getenv(BackendEnv))
	o.EtcdBinary = cmp.Or(o.EtcdBinary, os.Getenv(EtcdBinaryEnv))
	o.NFTables = o.NFTables || os.Getenv(RulesEnv) == RulesNFTables
	return o
}
