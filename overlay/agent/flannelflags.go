package agent

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
)

// verbosity is flannel's -v, a number, as a log level.
type verbosity struct{ level *string }

func (v verbosity) String() string { return "" }

func (v verbosity) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no number from 0 on", text)
	}
	if n > 0 {
		*v.level = "debug"
	}
	return nil
}

// defineLogging declares the flags of flannel's logger, which say nothing to this one.
func defineLogging(f *flag.FlagSet) {
	for _, name := range []string{"vmodule", "log_backtrace_at"} {
		f.String(name, "", "only for flannel's command lines: it has no effect here")
	}
}

// errKube refuses what flannel has for its Kubernetes mode.
var errKube = errors.New("this agent keeps its leases in etcd; it has no Kubernetes mode")

// kubeFlag accepts the value with which flannel's own Kubernetes flag does nothing, and refuses others.
type kubeFlag struct{ nothing string }

func (k kubeFlag) String() string { return k.nothing }

func (k kubeFlag) Set(v string) error {
	if v != k.nothing {
		return errKube
	}
	return nil
}

func (k kubeFlag) IsBoolFlag() bool { return k.nothing == "false" }

// defineKube declares the flags of flannel's Kubernetes mode, so that a command line that has them switched
// off works and any other gets the reason.
func defineKube(f *flag.FlagSet) {
	const usage = "only for flannel's command lines: there is no Kubernetes mode"
	for name, nothing := range map[string]string{
		"kube-subnet-mgr": "false", "set-node-network-unavailable": "false", "kubeconfig-file": "",
		"kube-api-url": "", "kube-annotation-prefix": "flannel.alpha.coreos.com",
		"net-config-path": "/etc/kube-flannel/net-conf.json",
	} {
		f.Var(kubeFlag{nothing}, name, usage)
	}
}
