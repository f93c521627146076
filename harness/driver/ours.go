package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/harness/node"
)

// Ours is the overlay of this repository, from a folder of binaries.
type Ours struct {
	// Bin is the folder with overlayd, overlay-cni, bridge and host-local.
	Bin string
	// Defects are historic failures to have. With any, the special build of the agent and the plugin is used.
	Defects []string
	// Args are given to the agent after those of the cluster.
	Args []string
	// Agent is another build of overlayd; empty for the one in Bin.
	Agent string
	// CNIConf and CNIDirs, if set, replace the CNI configuration and come before Bin in the search for plugins.
	CNIConf []byte
	CNIDirs []string
}

// ourName is what the overlay of this repository is called.
const ourName = "overlayd"

// Name tells the normal build from one with defects.
func (o Ours) Name() string {
	if len(o.Defects) == 0 {
		return ourName
	}
	return ourName + " with " + strings.Join(o.Defects, " and ")
}

// BuiltWith returns the defects, and what the overlay is called without them.
func (o Ours) BuiltWith() (name string, defects []string) { return ourName, o.Defects }

func (o Ours) binary(name string) string {
	if len(o.Defects) > 0 {
		name += "-defects"
	}
	return filepath.Join(o.Bin, name)
}

func (o Ours) agent() string {
	if o.Agent != "" {
		return o.Agent
	}
	return o.binary("overlayd")
}

// Version asks overlayd.
func (o Ours) Version(ctx context.Context) (string, error) {
	return askVersion(ctx, o.agent(), "--version")
}

// Check looks for the binaries.
func (o Ours) Check() error {
	var errs []error
	for _, path := range []string{
		o.agent(), o.binary("overlay-cni"),
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
		"--etcd-endpoints=" + s.endpoints(), "--etcd-prefix=" + s.EtcdPrefix,
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
	return node.Command{Name: "overlayd", Path: o.agent(), Args: args}
}

// KeyPrefix is flannel's.
func (o Ours) KeyPrefix() string { return DefaultPrefix }

// StateDir is where the agent keeps what outlives it.
func (o Ours) StateDir() string { return "/var/lib/overlayd" }

// SubnetFile is flannel's.
func (o Ours) SubnetFile() string { return "/run/flannel/subnet.env" }

// Device is flannel's.
func (o Ours) Device(vni int) string { return fmt.Sprintf("flannel.%d", vni) }

// CNI is flannel's usual configuration with the plugin's name in place of flannel's.
func (o Ours) CNI() ([]byte, []string) {
	dirs := append(slices.Clip(o.CNIDirs), o.Bin)
	if o.CNIConf != nil {
		return o.CNIConf, dirs
	}
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
	return raw, dirs
}
