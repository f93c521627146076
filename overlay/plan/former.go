package plan

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/nemesh/nemesh/overlay/lease"
)

// Gateway is where a peer's subnet of one family is reached over the uplink, or was in a former network.
type Gateway struct {
	Dst netip.Prefix
	Via netip.Addr
}

// Compare orders gateways by destination, then by address.
func (g Gateway) Compare(o Gateway) int {
	return cmp.Or(g.Dst.Compare(o.Dst), g.Via.Compare(o.Via))
}

// FormerDevice is a VXLAN device that the node made with another configuration. A device with another name,
// VNI or MAC is not the overlay's.
type FormerDevice struct {
	Name string
	VNI  uint32
	MAC  lease.MAC
}

// Compare orders devices by name.
func (d FormerDevice) Compare(o FormerDevice) int { return strings.Compare(d.Name, o.Name) }
