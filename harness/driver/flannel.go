package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/nemesh/nemesh/harness/node"
)

// Flannel is flannel's own agent, a binary that the user brings, with this repository's CNI plugin, which
// takes flannel's configuration. Its lease lives 24 h and its timers cannot be changed.
type Flannel struct {
	Ours
	// Path is the flanneld binary; it must speak etcd v3 (v0.18 or newer).
	Path string
}

// Name implements Driver.
func (f Flannel) Name() string { return "flanneld" }

// Check looks for the binaries, and for iptables, without which flanneld ends at start.
func (f Flannel) Check() error {
	errs := []error{f.Ours.Check()}
	if _, err := os.Stat(f.Path); err != nil {
		errs = append(errs, fmt.Errorf("flanneld: %w", err))
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		errs = append(errs, fmt.Errorf("flanneld needs the iptables program: %w", err))
	}
	return errors.Join(errs...)
}

// Command implements Driver.
func (f Flannel) Command(s Spec) node.Command {
	return node.Command{Name: "flanneld", Path: f.Path, Args: append([]string{
		"--etcd-endpoints=" + strings.Join(s.EtcdEndpoints, ","), "--etcd-prefix=" + s.EtcdPrefix,
		"--iface=" + s.Uplink, "--public-ip=" + s.PublicIP.String(), "--ip-masq",
	}, append(s.tls(), s.ExtraArgs...)...)}
}
