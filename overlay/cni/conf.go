package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/nemesh/nemesh/overlay/defect"
)

// conf is the plugin's network configuration; the fields are flannel's.
type conf struct {
	types.NetConf
	SubnetFile string         `json:"subnetFile"`
	DataDir    string         `json:"dataDir"`
	Delegate   map[string]any `json:"delegate"`
	IPAM       map[string]any `json:"ipam,omitempty"`
	// RuntimeConfig is passed on to the delegate as it is.
	RuntimeConfig map[string]any `json:"runtimeConfig,omitempty"`
	// Attachments are those that GC must keep (CNI 1.1).
	Attachments []types.GCAttachment `json:"cni.dev/valid-attachments,omitempty"`
	Defects     []string             `json:"defects,omitempty"`

	defects defect.Set
}

const (
	defaultSubnetFile = "/run/flannel/subnet.env"
	// defaultDataDir is flannel's, so that pods which its plugin set up can be taken down by this one.
	defaultDataDir = "/var/lib/cni/flannel"
	defaultBridge  = "cni0"
)

func parseConf(raw []byte) (conf, error) {
	c := conf{SubnetFile: defaultSubnetFile, DataDir: defaultDataDir}
	if err := json.Unmarshal(raw, &c); err != nil {
		return conf{}, fmt.Errorf("the network configuration is not the JSON expected: %w", err)
	}
	if c.Delegate == nil {
		c.Delegate = map[string]any{}
	}
	for _, field := range []string{"name", "ipam"} {
		if _, there := c.Delegate[field]; there {
			return conf{}, fmt.Errorf("delegate must not have the field %q: it is filled in", field)
		}
	}
	if kind, there := c.Delegate["type"]; there {
		if _, ok := kind.(string); !ok {
			return conf{}, errors.New("delegate's type must be a string, such as \"bridge\"")
		}
	}
	var err error
	c.defects, err = defect.Parse(c.Defects)
	return c, err
}

// delegateType returns the plugin that does the work.
func (c conf) delegateType() string {
	if kind, ok := c.Delegate["type"].(string); ok {
		return kind
	}
	return "bridge"
}

// bridge returns the name of the delegate's bridge; "" when the delegate has none.
func (c conf) bridge() string {
	if c.delegateType() != "bridge" {
		return ""
	}
	if name, ok := c.Delegate["bridge"].(string); ok && name != "" {
		return name
	}
	return defaultBridge
}

// mtu returns what the bridge and its pods get; 0 when the user's configuration does not say it in a number.
func (c conf) mtu(e subnetEnv) int {
	given, there := c.Delegate["mtu"]
	if !there {
		return e.MTU
	}
	n, ok := given.(float64)
	if !ok {
		return 0
	}
	return int(n)
}

// delegateConf builds the delegate's configuration from the node's subnet, as flannel's plugin does.
func (c conf) delegateConf(e subnetEnv) ([]byte, error) {
	d := maps.Clone(c.Delegate)
	d["name"], d["type"] = c.Name, c.delegateType()
	if c.CNIVersion != "" {
		d["cniVersion"] = c.CNIVersion
	}
	standard := func(field string, value any) {
		if _, there := d[field]; !there {
			d[field] = value
		}
	}
	standard("ipMasq", !e.IPMasq) // one of the two masquerades, not both
	standard("mtu", e.MTU)
	if c.delegateType() == "bridge" {
		standard("isGateway", true)
	}
	if c.RuntimeConfig != nil {
		d["runtimeConfig"] = c.RuntimeConfig
	}
	d["ipam"] = c.ipam(e)
	return json.Marshal(d)
}

// ipam gives pods addresses out of the node's subnets and routes to the networks.
func (c conf) ipam(e subnetEnv) map[string]any {
	ipam := maps.Clone(c.IPAM)
	if ipam == nil {
		ipam = map[string]any{}
	}
	if _, there := ipam["type"]; !there {
		ipam["type"] = "host-local"
	}
	var ranges []any
	for _, g := range e.Gateways {
		ranges = append(ranges, []any{map[string]any{"subnet": g.Masked().String()}})
	}
	ipam["ranges"] = ranges
	routes, _ := ipam["routes"].([]any)
	routes = append([]any{}, routes...)
	for _, n := range e.Networks {
		routes = append(routes, map[string]any{"dst": n.String()})
	}
	ipam["routes"] = routes
	return ipam
}
