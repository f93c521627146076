package follow

import (
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// State is what one network namespace holds.
type State struct {
	Links      []Link
	Addresses  []Address
	Routes     []Route
	Neighbours []Neighbour
	FDB        []FDBEntry
	Rules      []Rule
	// Sysctls are by their path under /proc/sys/net/ipv4, such as "conf/cni0/rp_filter".
	Sysctls map[string]string
}

// Link is a network device.
type Link struct {
	Index   int
	Name    string
	Type    string // "veth", "bridge", "vxlan", …
	Up      bool
	Carrier bool
	MTU     int
	MAC     string
	// Master is the index of the bridge it is on, and Peer that of the other end of a veth, in the other
	// namespace; 0 for none.
	Master, Peer int
	// VNI and Port are those of a VXLAN device.
	VNI, Port int
}

// Address is an address of a device.
type Address struct {
	Device string
	Prefix netip.Prefix
}

// Route is an IPv4 route.
type Route struct {
	Dst    netip.Prefix
	Via    netip.Addr
	Device string
	// Type is that of ip-route(8): "unicast", "local", "blackhole", …
	Type   string
	Table  int
	Metric int
}

// String reads like ip route.
func (r Route) String() string {
	text := r.Dst.String()
	if r.Dst.Bits() == 0 {
		text = "default"
	}
	if r.Type != "unicast" {
		text = r.Type + " " + text
	}
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	if r.Device != "" {
		text += " dev " + r.Device
	}
	return text
}

// Neighbour is an entry of the neighbour table.
type Neighbour struct {
	Device string
	IP     netip.Addr
	MAC    string
	State  string // as ip neigh prints it
}

// FDBEntry is a forwarding entry of a VXLAN device.
type FDBEntry struct {
	Device string
	MAC    string
	Dst    netip.Addr
}

// Rule is an nftables rule as text.
type Rule struct {
	Family, Table, Chain string
	Handle               uint64
	Text                 string
}

// link finds a device by name.
func (s State) link(name string) (Link, bool) {
	for _, l := range s.Links {
		if l.Name == name {
			return l, true
		}
	}
	return Link{}, false
}

// index finds a device by index.
func (s State) index(i int) (Link, bool) {
	for _, l := range s.Links {
		if l.Index == i {
			return l, true
		}
	}
	return Link{}, false
}

// holds reports whether an address is one of the namespace's own.
func (s State) holds(a netip.Addr) bool {
	for _, have := range s.Addresses {
		if have.Prefix.Addr() == a {
			return true
		}
	}
	return false
}

// neighbour finds the entry for an address.
func (s State) neighbour(device string, ip netip.Addr) (Neighbour, bool) {
	for _, n := range s.Neighbours {
		if n.Device == device && n.IP == ip {
			return n, true
		}
	}
	return Neighbour{}, false
}

// fdb finds the entry by which a VXLAN device sends to a MAC; the all-zeros entry stands for all others.
func (s State) fdb(device, mac string) (FDBEntry, bool) {
	var fallback *FDBEntry
	for _, e := range s.FDB {
		switch {
		case e.Device != device:
		case e.MAC == mac:
			return e, true
		case e.MAC == "00:00:00:00:00:00":
			fallback = &e
		}
	}
	if fallback == nil {
		return FDBEntry{}, false
	}
	return *fallback, true
}

// rule finds a rule by what a trace says of it.
func (s State) rule(v RuleVerdict) (Rule, bool) {
	for _, r := range s.Rules {
		if r.Family == v.Family && r.Table == v.Table && r.Chain == v.Chain && r.Handle == v.Handle {
			return r, true
		}
	}
	return Rule{}, false
}

// lookup does what the kernel does with its default policy: the longest prefix in the table local, then in
// main, then in default; of equal ones that with the lowest metric. Policy rules beyond these are not known.
func (s State) lookup(dst netip.Addr) (Route, bool) {
	for _, table := range []int{unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT} {
		best, found := Route{}, false
		for _, r := range s.Routes {
			if r.Table != table || !r.Dst.Contains(dst) {
				continue
			}
			if !found || r.Dst.Bits() > best.Dst.Bits() ||
				r.Dst.Bits() == best.Dst.Bits() && r.Metric < best.Metric {
				best, found = r, true
			}
		}
		if found && best.Type != "throw" {
			return best, true
		}
	}
	return Route{}, false
}

// sysctl returns a number; 0 when it is not known.
func (s State) sysctl(path string) int {
	n, err := strconv.Atoi(s.Sysctls[path])
	if err != nil {
		return 0
	}
	return n
}

// refusedByRPFilter reports whether reverse path filtering drops what comes in on a device from a source:
// the stricter of the device's and of all's setting counts (Documentation/networking/ip-sysctl.rst).
func (s State) refusedByRPFilter(device string, src netip.Addr) (back Route, refused bool) {
	mode := max(s.sysctl("conf/all/rp_filter"), s.sysctl("conf/"+device+"/rp_filter"))
	back, found := s.lookup(src)
	switch {
	case mode == 0:
		return back, false
	case !found || back.Type != "unicast":
		return back, true
	default:
		return back, mode == 1 && back.Device != device
	}
}

// resolved reports whether a neighbour's state has a usable MAC.
func (n Neighbour) resolved() bool {
	switch n.State {
	case "INCOMPLETE", "FAILED", "NONE", "":
		return false
	}
	return true
}
