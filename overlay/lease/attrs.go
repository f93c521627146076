package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Attrs is the value of a lease's key: what a node publishes for its peers. The JSON is flannel's
// (pkg/lease/lease.go).
type Attrs struct {
	PublicIP      netip.Addr
	PublicIPv6    netip.Addr
	BackendType   string
	BackendData   *VXLAN
	BackendV6Data *VXLAN
}

// VXLAN is what a node of the vxlan backend publishes about its VTEP.
type VXLAN struct {
	VNI     uint32
	VtepMAC MAC
}

// MAC is a hardware address that can be compared. Its text form is six pairs of hex digits with colons.
type MAC [6]byte

// ParseMAC reads a MAC in any form that net.ParseMAC takes, of six bytes.
func ParseMAC(text string) (MAC, error) {
	hw, err := net.ParseMAC(text)
	if err != nil || len(hw) != len(MAC{}) {
		return MAC{}, errors.Join(fmt.Errorf("%q is not a MAC address", text), err)
	}
	return MAC(hw), nil
}

// String returns the usual text form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Unicast reports whether the MAC can be a device's: not all zero, and without the group bit (IEEE 802).
func (m MAC) Unicast() bool { return m != MAC{} && m[0]&1 == 0 }

// MarshalText and UnmarshalText use the usual text form.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (m *MAC) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMAC(string(text))
	return err
}

// value is the JSON as it stands in etcd: PublicIPv6 is always there, null without IPv6; the others go away
// when empty.
type value struct {
	PublicIP      string
	PublicIPv6    *string
	BackendType   string          `json:",omitempty"`
	BackendData   json.RawMessage `json:",omitempty"`
	BackendV6Data json.RawMessage `json:",omitempty"`
}

// MarshalJSON writes flannel's form.
func (a Attrs) MarshalJSON() ([]byte, error) {
	v := value{PublicIP: "0.0.0.0", BackendType: a.BackendType}
	if a.PublicIP.IsValid() {
		v.PublicIP = a.PublicIP.String()
	}
	if a.PublicIPv6.IsValid() {
		text := a.PublicIPv6.String()
		v.PublicIPv6 = &text
	}
	var err error
	if v.BackendData, err = marshalData(a.BackendData); err != nil {
		return nil, err
	}
	if v.BackendV6Data, err = marshalData(a.BackendV6Data); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func marshalData(d *VXLAN) (json.RawMessage, error) {
	if d == nil {
		return nil, nil
	}
	return json.Marshal(d)
}

// UnmarshalJSON reads flannel's form. Backend data is understood for vxlan only; that of other backends is
// left out, since nothing of it is needed to tell that the lease is another backend's.
func (a *Attrs) UnmarshalJSON(raw []byte) error {
	var v value
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("not a lease's value: %w", err)
	}
	got := Attrs{BackendType: v.BackendType}
	var err error
	if got.PublicIP, err = netip.ParseAddr(v.PublicIP); err != nil || !got.PublicIP.Is4() {
		return fmt.Errorf("PublicIP %q is not an IPv4 address", v.PublicIP)
	}
	if got.PublicIP.IsUnspecified() {
		got.PublicIP = netip.Addr{} // an IPv6-only node says 0.0.0.0
	}
	if v.PublicIPv6 != nil {
		got.PublicIPv6, err = netip.ParseAddr(*v.PublicIPv6)
		if err != nil || !got.PublicIPv6.Is6() || got.PublicIPv6.Is4In6() {
			return fmt.Errorf("PublicIPv6 %q is not an IPv6 address", *v.PublicIPv6)
		}
	}
	if v.BackendType == "vxlan" {
		if got.BackendData, err = unmarshalData(v.BackendData); err != nil {
			return fmt.Errorf("BackendData: %w", err)
		}
		if got.BackendV6Data, err = unmarshalData(v.BackendV6Data); err != nil {
			return fmt.Errorf("BackendV6Data: %w", err)
		}
	}
	*a = got
	return nil
}

func unmarshalData(raw json.RawMessage) (*VXLAN, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var d VXLAN
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// Node returns the public address that identifies a node: the IPv4 address, or the IPv6 address of a node
// without IPv4. It is invalid if the node has none.
func (a Attrs) Node() netip.Addr {
	if a.PublicIP.IsValid() {
		return a.PublicIP
	}
	return a.PublicIPv6
}

// Same reports whether both publish the same.
func (a Attrs) Same(b Attrs) bool {
	return a.PublicIP == b.PublicIP && a.PublicIPv6 == b.PublicIPv6 && a.BackendType == b.BackendType &&
		sameData(a.BackendData, b.BackendData) && sameData(a.BackendV6Data, b.BackendV6Data)
}

func sameData(a, b *VXLAN) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
