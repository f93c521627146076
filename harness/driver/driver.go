// Package driver says how an overlay under test is started, found ready and used: the overlay of this
// repository, with or without a defect, or another vendor's.
package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nemesh/nemesh/harness/node"
)

// Spec is what an agent needs to know about its node and its cluster.
type Spec struct {
	Node          string
	PublicIP      netip.Addr
	Uplink        string
	EtcdEndpoints []string
	EtcdPrefix    string
	LeaseTTL      time.Duration
	Resync        time.Duration
	PeerHold      time.Duration
	VNI           int
	// EtcdCAFile, EtcdCertFile and EtcdKeyFile are set when etcd speaks TLS.
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	ExtraArgs                             []string
}

// tls lists the flags for TLS to etcd, which are flannel's.
func (s Spec) tls() []string {
	if s.EtcdCAFile == "" {
		return nil
	}
	return []string{"--etcd-cafile=" + s.EtcdCAFile, "--etcd-certfile=" + s.EtcdCertFile,
		"--etcd-keyfile=" + s.EtcdKeyFile}
}

// Driver is one overlay under test. Its values are read only, so one driver serves many nodes.
type Driver interface {
	// Name is what the overlay is called in records and reports.
	Name() string
	// Check says, before a world is built, what keeps the overlay from running, such as a missing binary.
	Check() error
	// Command is how the agent is started on a node.
	Command(Spec) node.Command
	// SubnetFile is where the agent leaves its node's subnet, on the node.
	SubnetFile() string
	// Device is the name of the overlay's device on a node.
	Device(vni int) string
	// CNI is the configuration list with which pods are made, and where its plugins are.
	CNI() (confList []byte, binDirs []string)
}

// Ours is the overlay of this repository, from a folder of binaries.
type Ours struct {
	// Bin is the folder with overlayd, overlay-cni, bridge and host-local.
	Bin string
	// Defects are historic failures to have. With any, the special build of the agent and the plugin is used.
	Defects []string
	// Args are given to the agent after those of the cluster.
	Args []string
}

// Name tells the normal build from one with defects.
func (o Ours) Name() string {
	if len(o.Defects) == 0 {
		return "overlayd"
	}
	return "overlayd with " + strings.Join(o.Defects, " and ")
}

func (o Ours) binary(name string) string {
	if len(o.Defects) > 0 {
		name += "-defects"
	}
	return filepath.Join(o.Bin, name)
}

// Check looks for the binaries.
func (o Ours) Check() error {
	var errs []error
	for _, path := range []string{
		o.binary("overlayd"), o.binary("overlay-cni"),
		filepath.Join(o.Bin, "bridge"), filepath.Join(o.Bin, "host-local"),
	} {
		if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
			errs = append(
				errs,
				errors.Join(fmt.Errorf("%s is missing or not executable: run `make build`", path), err),
			)
		}
	}
	return errors.Join(errs...)
}

// Command starts the agent with timers that suit scenarios.
func (o Ours) Command(s Spec) node.Command {
	args := []string{
		"--etcd-endpoints=" + strings.Join(s.EtcdEndpoints, ","), "--etcd-prefix=" + s.EtcdPrefix,
		"--iface=" + s.Uplink, "--node-name=" + s.Node,
		"--lease-ttl=" + s.LeaseTTL.String(), "--resync=" + s.Resync.String(), "--ip-masq",
		"--etcd-timeout=500ms", "--etcd-check=500ms", "--start-grace=1s",
	}
	if s.PeerHold > 0 {
		args = append(args, "--peer-hold="+s.PeerHold.String())
	}
	for _, d := range o.Defects {
		args = append(args, "--defect="+d)
	}
	args = append(args, s.tls()...)
	args = append(append(args, o.Args...), s.ExtraArgs...)
	return node.Command{Name: "overlayd", Path: o.binary("overlayd"), Args: args}
}

// StateDir is where the agent keeps what outlives it.
func (o Ours) StateDir() string { return "/var/lib/overlayd" }

// SubnetFile is flannel's.
func (o Ours) SubnetFile() string { return "/run/flannel/subnet.env" }

// Device is flannel's.
func (o Ours) Device(vni int) string { return fmt.Sprintf("flannel.%d", vni) }

// CNI is flannel's usual configuration with the plugin's name in place of flannel's.
func (o Ours) CNI() ([]byte, []string) {
	plugin := map[string]any{
		"type":     filepath.Base(o.binary("overlay-cni")),
		"delegate": map[string]any{"hairpinMode": true, "isDefaultGateway": true},
	}
	if len(o.Defects) > 0 {
		plugin["defects"] = o.Defects
	}
	raw, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "overlay", "plugins": []any{plugin},
	})
	if err != nil {
		panic(err) // only strings and maps go in
	}
	return raw, []string{o.Bin}
}
