// Package flannelkeys reads and writes what flannel's agents and compatible ones tell each other in etcd. It
// reads the subnet file that they leave on a node, too. It works on strings: the caller talks to etcd. The
// overlay has a codec of its own, on purpose: so an error in one of them shows.
//
// Below the overlay's prefix there are
//
//	<prefix>/config             the network configuration
//	<prefix>/subnets/<subnet>   a node's lease (flannel's pkg/subnet/subnet.go, pkg/lease/lease.go)
//	<prefix>/owners/<subnet>    who had a subnet last; flannel has none
//
// where <subnet> is 10.5.52.0-24, dual-stack 10.5.52.0-24&fc00:1:2:3::-64.
package flannelkeys

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// What follows the prefix in a key. The key of a subnet follows Subnets and Owners.
const (
	Config  = "/config"
	Subnets = "/subnets/"
	Owners  = "/owners/"
)

// Lease is a subnet lease. What it does not say is zero.
type Lease struct {
	// Key is the last part of its key, such as 10.5.3.0-24, and Value its JSON. Only parsing sets them.
	Key, Value string
	// Subnet and Subnet6 are the node's part of the overlay's networks.
	Subnet, Subnet6 netip.Prefix
	// PublicIP and PublicIP6 are the node's addresses on the underlay.
	PublicIP, PublicIP6 netip.Addr
	// Backend is how packets are carried, such as "vxlan".
	Backend string
	// VNI and VtepMAC are those of the node's VXLAN device, VNI6 and VtepMAC6 of that for IPv6. A MAC is in
	// lower case, with colons.
	VNI, VNI6         int
	VtepMAC, VtepMAC6 string
	// ID is the etcd lease's and TTL what is left of it; both 0 for a reservation. The caller sets them.
	ID  int64
	TTL time.Duration
}

// Owner is the record of the node that last had a subnet. Only agents write it.
type Owner struct {
	Lease
	// Ends is when the lease of its last renewal ended, or would end.
	Ends time.Time
}

// Key returns the last part of a subnet's key. Either family may be missing.
func Key(v4, v6 netip.Prefix) string {
	var parts []string
	for _, p := range []netip.Prefix{v4, v6} {
		if p.IsValid() {
			parts = append(parts, fmt.Sprintf("%s-%d", p.Addr(), p.Bits()))
		}
	}
	return strings.Join(parts, "&")
}

// ParseKey reads what Key returns. Anything else, host bits and other spellings included, is an error.
func ParseKey(key string) (v4, v6 netip.Prefix, err error) {
	for part := range strings.SplitSeq(key, "&") {
		addr, bits, _ := strings.Cut(part, "-")
		p, err := netip.ParsePrefix(addr + "/" + bits)
		switch {
		case err != nil:
			return netip.Prefix{}, netip.Prefix{}, fmt.Errorf("%q is not the key of a subnet: %w", key, err)
		case p.Addr().Is4():
			v4 = p.Masked()
		default:
			v6 = p.Masked()
		}
	}
	if Key(v4, v6) != key {
		return netip.Prefix{}, netip.Prefix{}, fmt.Errorf("%q is not the key of a subnet: that is %s", key,
			Key(v4, v6))
	}
	return v4, v6, nil
}

// value is a lease's JSON. PublicIPv6 is always there, null for none.
type value struct {
	PublicIP      netip.Addr
	PublicIPv6    *netip.Addr
	BackendType   string `json:",omitempty"`
	BackendData   *vtep  `json:",omitempty"`
	BackendV6Data *vtep  `json:",omitempty"`
}

// vtep is a VXLAN device. Old agents leave out the VNI, and other backends both.
type vtep struct {
	VNI     int
	VtepMAC string
}

// ParseLease reads a lease from the last part of its key and its value.
func ParseLease(key, text string) (Lease, error) {
	var v value
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return Lease{}, fmt.Errorf("the value of %s is not a lease's: %w", key, err)
	}
	return v.lease(key, text)
}

// ParseOwner reads an owner's record from the last part of its key and its value.
func ParseOwner(key, text string) (Owner, error) {
	var r struct {
		Attrs value
		Seen  time.Time
		TTL   int64 // in seconds
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Owner{}, fmt.Errorf("the value of %s is not an owner's record: %w", key, err)
	}
	l, err := r.Attrs.lease(key, text)
	return Owner{Lease: l, Ends: r.Seen.Add(time.Duration(r.TTL) * time.Second)}, err
}

func (v value) lease(key, text string) (Lease, error) {
	l := Lease{Key: key, Value: text, Backend: v.BackendType}
	var err error
	if l.Subnet, l.Subnet6, err = ParseKey(key); err != nil {
		return Lease{}, err
	}
	if !v.PublicIP.IsUnspecified() { // which a node without IPv4 says
		l.PublicIP = v.PublicIP
	}
	if v.PublicIPv6 != nil {
		l.PublicIP6 = *v.PublicIPv6
	}
	if l.PublicIP.Is6() || l.PublicIP6.Is4() {
		return Lease{}, fmt.Errorf("the value of %s has an address of the other family: %s", key, text)
	}
	l.VNI, l.VtepMAC = v.BackendData.read()
	l.VNI6, l.VtepMAC6 = v.BackendV6Data.read()
	return l, nil
}

// read takes what is no MAC of Ethernet for none.
func (t *vtep) read() (vni int, mac string) {
	if t == nil {
		return 0, ""
	}
	if hw, err := net.ParseMAC(t.VtepMAC); err == nil && len(hw) == 6 {
		mac = hw.String()
	}
	return t.VNI, mac
}

// JSON returns the value that a plain flannel node puts into etcd for the lease.
func (l Lease) JSON() string {
	v := value{PublicIP: l.PublicIP, BackendType: l.Backend}
	if !v.PublicIP.IsValid() {
		v.PublicIP = netip.IPv4Unspecified()
	}
	if l.PublicIP6.IsValid() {
		v.PublicIPv6 = &l.PublicIP6
	}
	if l.VNI != 0 || l.VtepMAC != "" {
		v.BackendData = &vtep{l.VNI, l.VtepMAC}
	}
	if l.VNI6 != 0 || l.VtepMAC6 != "" {
		v.BackendV6Data = &vtep{l.VNI6, l.VtepMAC6}
	}
	raw, _ := json.Marshal(v) // of addresses, numbers and strings, which cannot fail
	return string(raw)
}

// Env is what a node's subnet file says.
type Env struct {
	// Gateway and Gateway6 are the addresses of the node's bridge, with the length of its subnet.
	Gateway, Gateway6 netip.Prefix
}

// ParseEnv reads a subnet file, as flannel's WriteSubnetFile writes it. That it names no subnet is an error.
func ParseEnv(text []byte) (Env, error) {
	var e Env
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		to := map[string]*netip.Prefix{"FLANNEL_SUBNET": &e.Gateway, "FLANNEL_IPV6_SUBNET": &e.Gateway6}[name]
		if to == nil {
			continue
		}
		var err error
		if *to, err = netip.ParsePrefix(value); err != nil {
			return Env{}, fmt.Errorf("read the subnet file: %w", err)
		}
	}
	if e == (Env{}) {
		return e, errors.New("the subnet file names no subnet")
	}
	return e, nil
}

// Key returns the last part of the key of the node's subnet.
func (e Env) Key() string { return Key(e.Gateway.Masked(), e.Gateway6.Masked()) }
