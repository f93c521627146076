package driver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/nemesh/nemesh/harness/node"
)

// Flannel is flannel's own agent, a binary that the user brings, with this repository's CNI plugin, which
// takes flannel's configuration, unless another is given. Its lease lives 24 h and its timers cannot be
// changed, so what a short lease would bring about is done from outside.
type Flannel struct {
	Ours
	// Path is the flanneld binary.
	Path string
	// V2 says that it is older than v0.18 and speaks etcd's v2 API, which needs an etcd of the user's (3.4 or
	// 3.5).
	V2 bool
	// NoIPv6 says that it is older than v0.14 and knows networks of IPv4 only.
	NoIPv6 bool
	// OnDemand says that it is older than v0.9 and answers the kernel's questions for neighbours one by one.
	OnDemand bool
}

const (
	// firstV3 is the first minor version of flannel (v0.18) that speaks etcd's v3 API.
	firstV3 = 18
	// firstIPv6 is the first (v0.14) that knows EnableIPv6.
	firstIPv6 = 14
	// firstPermanent is the first (v0.9) with a route, a permanent neighbour and a forwarding entry per peer.
	firstPermanent = 9
)

// older reports whether a version of flannel is older than v0.minor.
func older(version string, minor int) bool {
	var major, own int
	_, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &own)
	return err == nil && major == 0 && own < minor
}

// onDemand is the defect of flannel#636.
const onDemand = "on-demand-neighbours"

// HasDefect tells that flannel before v0.9 is what flannel#636 was reported of.
func (f Flannel) HasDefect(name string) bool { return f.OnDemand && name == onDemand }

// Waives says what flannel before v0.9 was not made to keep, so that scenarios judge it by what pods feel.
func (f Flannel) Waives() map[string]string {
	if !f.OnDemand {
		return nil
	}
	const why = "flannel before v0.9 has one route for the whole network, and no neighbour that lasts"
	return map[string]string{
		"kernel-holds-what-is-explained": why,
		"agent-makes-progress":           why,
		"own-subnet-stays-local":         why + ", also on a node without pods",
	}
}

// Name implements Driver.
func (f Flannel) Name() string { return "flanneld" }

// Check looks for the binaries, and for iptables, without which flanneld ends at start.
func (f Flannel) Check() error {
	return errors.Join(
		f.Ours.Check(),
		checkProgram(f.Path),
		checkNeeded("flanneld", "iptables", "iptables-restore"),
	)
}

// Command implements Driver. The public address is left to flanneld, which takes the uplink's.
func (f Flannel) Command(s Spec) node.Command {
	return node.Command{Name: "flanneld", Path: f.Path, Args: append([]string{
		"--etcd-endpoints=" + s.endpoints(), "--etcd-prefix=" + s.EtcdPrefix, "--iface=" + s.Uplink, "--ip-masq",
	}, append(s.tls(), s.ExtraArgs...)...)}
}

// Version asks flanneld.
func (f Flannel) Version(ctx context.Context) (string, error) {
	line, err := askLine(ctx, f.Path, "--version")
	if err != nil {
		return "", err
	}
	// flanneld prints its version and nothing else.
	if fields := strings.Fields(line); len(fields) != 1 {
		return "", fmt.Errorf(
			"%s is not a flanneld: asked for its version it says %q; another agent is described in a "+
				"driver file, of which fixtures/drivers/flannel.yaml is an example",
			f.Path,
			line,
		)
	}
	return askVersion(ctx, f.Path, "--version")
}

// Supervised is true: flanneld ends when its lease is gone and leaves the rest to who started it.
func (f Flannel) Supervised() bool { return true }

// Lacks lists what flanneld has no flag or file for.
func (f Flannel) Lacks() []Feature {
	lacks := []Feature{FeatureLeaseTTL, FeatureLeave, FeatureOwners, FeatureState}
	if f.V2 {
		lacks = append(lacks, FeatureEtcdV3)
	}
	if f.NoIPv6 {
		lacks = append(lacks, FeatureIPv6)
	}
	return lacks
}

// checkNeeded looks for programs that an agent calls.
func checkNeeded(agent string, programs ...string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return &MissingProgramError{Agent: agent, Program: p}
		}
	}
	return nil
}

// MissingProgramError says that an agent needs a program that the machine does not have.
type MissingProgramError struct{ Agent, Program string }

// Error is one line with what to do.
func (e *MissingProgramError) Error() string {
	hint := "install it"
	if e.Program == "iptables" || e.Program == "iptables-restore" {
		hint = "apt-get install iptables, or your system's like"
	}
	return e.Agent + " needs the program " + e.Program + ", which is not in PATH: " + hint
}
