// Package netconf reads the network configuration: one JSON document in etcd at <prefix>/config, the same as
// flannel's. Parse fills in the defaults. Its errors name each field that cannot work, and the value.
//
// The format and its rules are those of flannel's Documentation/configuration.md (v0.28), with one
// difference: a configuration without a Backend means vxlan, as flannel's documentation says, and not udp,
// as its code does.
package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Config is a network configuration that has passed validation.
type Config struct {
	// EnableIPv4 and EnableIPv6 say which families the network has; at least one.
	EnableIPv4, EnableIPv6 bool
	// IPv4 and IPv6 are the address ranges; valid only where the family is enabled.
	IPv4, IPv6 Range
	// Backend is how nodes reach each other.
	Backend Backend
}

// Range is the address space of one family and how it is divided among nodes.
type Range struct {
	// Network is the whole overlay network.
	Network netip.Prefix
	// SubnetLen is the prefix length of each node's subnet.
	SubnetLen int
	// Min and Max are the first and the last subnet that may be handed out.
	Min, Max netip.Prefix
}

// Contains reports whether a subnet may be handed out: it has the right length and is between Min and Max.
func (r Range) Contains(subnet netip.Prefix) bool {
	return subnet.IsValid() && subnet == subnet.Masked() && subnet.Bits() == r.SubnetLen &&
		subnet.Addr().Is4() == r.Network.Addr().Is4() &&
		subnet.Addr().Compare(r.Min.Addr()) >= 0 && subnet.Addr().Compare(r.Max.Addr()) <= 0
}

// Covers reports whether a prefix lies inside the network.
func (r Range) Covers(p netip.Prefix) bool {
	return r.Network.IsValid() && p.Bits() >= r.Network.Bits() && r.Network.Contains(p.Addr())
}

// Backend names the backend and holds the fields of those that have any.
type Backend struct {
	// Type is "vxlan", "host-gw" or another name, lower-case.
	Type string
	// VNI is the VXLAN network identifier (RFC 7348, 24 bits). Default 1.
	VNI uint32
	// Port is the UDP port of VXLAN packets; 0 is the kernel's default, 8472 (drivers/net/vxlan).
	Port int
	// MTU is that of the packets on the underlay, so pods get it less the overhead; 0 is the uplink's.
	MTU int
	// GBP turns on the group based policy extension, Learning the device's MAC learning, DirectRouting plain
	// routes to nodes on the same link.
	GBP, Learning, DirectRouting bool
}

// document is the configuration as it is written; the names are flannel's.
type document struct {
	EnableIPv4    *bool
	EnableIPv6    bool
	Network       string
	SubnetMin     string
	SubnetMax     string
	SubnetLen     int
	IPv6Network   string
	IPv6SubnetMin string
	IPv6SubnetMax string
	IPv6SubnetLen int
	Backend       json.RawMessage
}

// Parse reads and validates a configuration. The error lists every field that is wrong.
func Parse(raw []byte) (Config, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return Config{}, fmt.Errorf("the network configuration is not the JSON expected: %w", err)
	}
	c := Config{EnableIPv4: d.EnableIPv4 == nil || *d.EnableIPv4, EnableIPv6: d.EnableIPv6}
	if !c.EnableIPv4 && !c.EnableIPv6 {
		return Config{}, errors.New("EnableIPv4 and EnableIPv6 are both false: enable at least one")
	}
	var errs []error
	var err error
	if c.EnableIPv4 {
		c.IPv4, err = ipv4.parse(d.Network, d.SubnetMin, d.SubnetMax, d.SubnetLen)
		errs = append(errs, err)
	}
	if c.EnableIPv6 {
		c.IPv6, err = ipv6.parse(d.IPv6Network, d.IPv6SubnetMin, d.IPv6SubnetMax, d.IPv6SubnetLen)
		errs = append(errs, err)
	}
	c.Backend, err = parseBackend(d.Backend)
	if err == nil {
		err = c.fits()
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// fits returns an error if the VNI makes a device name of more than 15 bytes (IFNAMSIZ of linux/if.h).
func (c Config) fits() error {
	most, name := uint32(9_999_999), "flannel."
	if c.EnableIPv6 {
		most, name = 9_999, "flannel-v6."
	}
	if c.Backend.Type == "vxlan" && c.Backend.VNI > most {
		return fmt.Errorf(
			"Backend.VNI %d: the device would be called %s%d, which is longer than the 15 bytes that "+
				"a name may have: %d at most",
			c.Backend.VNI,
			name,
			c.Backend.VNI,
			most,
		)
	}
	return nil
}

func parseBackend(raw json.RawMessage) (Backend, error) {
	b := Backend{Type: "vxlan", VNI: 1}
	if len(raw) == 0 || string(raw) == "null" {
		return b, nil
	}
	b.Type = "" // a Backend that is there must say what it is
	if err := json.Unmarshal(raw, &b); err != nil {
		return Backend{}, fmt.Errorf("Backend %s: %w", raw, err)
	}
	b.Type = strings.ToLower(b.Type) // as flannel does (pkg/backend/manager.go)
	switch {
	case b.Type == "":
		return Backend{}, fmt.Errorf("Backend %s has no Type: give one, such as \"vxlan\"", raw)
	case b.VNI == 0 || b.VNI >= 1<<24:
		return Backend{}, fmt.Errorf("Backend.VNI %d is not a VXLAN network identifier: 1 to %d", b.VNI, 1<<24-1)
	case b.Port < 0 || b.Port > 65535:
		return Backend{}, fmt.Errorf("Backend.Port %d is no UDP port: 0 to 65535", b.Port)
	case b.MTU != 0 && (b.MTU < 576 || b.MTU > 65535):
		return Backend{}, fmt.Errorf("Backend.MTU %d: 576 to 65535, or 0 for the uplink's", b.MTU)
	}
	return b, nil
}
