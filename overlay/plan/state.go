// Package plan computes what the kernel of a node should hold, from the network configuration, the node's
// own lease and its peers. It is pure. A backend is one function. Everything else (repair, restart without a
// gap, removal of entries that no lease explains) follows from comparing its result with the kernel.
package plan

import (
	"net/netip"

	"github.com/nemesh/nemesh/overlay/lease"
)

// State is what the kernel should hold. Its values can be compared with ==.
type State struct {
	// Networks are the overlay's networks; a route, neighbour or address inside them is the overlay's own.
	Networks []netip.Prefix
	// Former are networks that this node had a subnet of before: what is left inside them is cleared.
	Former []netip.Prefix
	// FormerRoutes are routes over the uplink to peers of a former network, and FormerDevices devices of a
	// former configuration: they are removed unless they are wanted.
	FormerRoutes  []Gateway
	FormerDevices []FormerDevice
	// Uplink is the link to the other nodes, on which the overlay may hold routes to Networks.
	Uplink  string
	Devices []Device
	Addrs   []Addr
	Routes  []Route
	// Blackholes are prefixes to which packets are dropped when no other route leads there.
	Blackholes []netip.Prefix
	Neighbours []Neighbour
	FDB        []FDB
	Rules      []Rules
	Sysctls    []Sysctl
}

// Device is a VXLAN device.
type Device struct {
	Name string
	VNI  uint32
	// Port is the UDP port, never 0. Parent and Local are the uplink and its address.
	Port   int
	Parent string
	Local  netip.Addr
	MAC    lease.MAC
	MTU    int
	// GBP and Learning are as in the network configuration.
	GBP, Learning bool
}

// Addr is an address of one of the overlay's devices.
type Addr struct {
	Link   string
	Prefix netip.Prefix
}

// Route leads to a peer's subnet. Via is invalid for a route straight to the link.
type Route struct {
	Dst    netip.Prefix
	Via    netip.Addr
	Link   string
	Onlink bool
}

// Neighbour is a permanent entry of the neighbour table (ip neigh).
type Neighbour struct {
	Link string
	IP   netip.Addr
	MAC  lease.MAC
}

// FDB is a permanent entry of a VXLAN device's forwarding table: frames to MAC go to the VTEP at Dst.
type FDB struct {
	Link string
	MAC  lease.MAC
	Dst  netip.Addr
}

// Rules are the packet filter's rules of one family, in the overlay's own table.
type Rules struct {
	// Network is the overlay's and Subnet this node's own.
	Network, Subnet netip.Prefix
	// Masquerade hides pod addresses from the world outside the overlay; pod to pod is never masqueraded.
	// RandomFully picks the source port at random (flannel#1004 and the kernel races it links).
	Masquerade, RandomFully bool
	// Forward accepts forwarding from and to the network.
	Forward bool
}

// Sysctl is a kernel parameter, its name with slashes as under /proc/sys.
type Sysctl struct {
	Path, Value string
}

// Rejected is a peer that the plan leaves out, and why.
type Rejected struct {
	Subnet lease.Subnet
	Reason string
}

// Uplink is the link over which nodes reach each other.
type Uplink struct {
	Name string
	MTU  int
	// Addr and Addr6 are its addresses, used as the node's public addresses unless told otherwise.
	Addr, Addr6 netip.Addr
	// Pending6 says that an IPv6 address is there that the kernel still checks for duplicates (RFC 4862).
	Pending6 bool
}

// Device returns the name of the device that the entry is on.
func (n Neighbour) Device() string { return n.Link }

// Device returns the name of the device that the entry is on.
func (f FDB) Device() string { return f.Link }
