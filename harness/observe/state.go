package observe

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// State is what one network namespace holds, of IPv4 and of IPv6.
type State struct {
	Links     []Link
	Addresses []Address
	// Routes are those of all tables.
	Routes     []Route
	Neighbours []Neighbour
	// FDB are the forwarding entries of the VXLAN devices.
	FDB   []Neighbour
	Rules []Rule
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
	// VNI, Port, Local and Learning are those of a VXLAN device.
	VNI, Port int
	Local     netip.Addr
	Learning  bool
}

// Address is an address of a device.
type Address struct {
	Device string
	Prefix netip.Prefix
}

// Route is a route.
type Route struct {
	Dst    netip.Prefix
	Via    netip.Addr
	Device string
	// Hops are the next hops of a multipath route, which has no Via and Device of its own.
	Hops []Hop
	// Type is that of ip-route(8): "unicast", "local", "blackhole", …
	Type   string
	Table  int
	Metric int
	// OnLink says that Via needs no route of its own, ScopeLink that the destination is on the link.
	OnLink, ScopeLink bool
}

// Hop is a next hop of a multipath route.
type Hop struct {
	Via    netip.Addr
	Device string
}

// String returns the route in the words of ip route, without its type.
func (r Route) String() string {
	text := r.Dst.String()
	if r.Dst.Bits() == 0 {
		text = "default"
	}
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	if r.Device != "" {
		text += " dev " + r.Device
	}
	if r.ScopeLink {
		text += " scope link"
	}
	if r.OnLink {
		text += " onlink"
	}
	if r.Metric != 0 {
		text += fmt.Sprintf(" metric %d", r.Metric)
	}
	return text
}

// Neighbour is an entry of a neighbour or forwarding table.
type Neighbour struct {
	Device string
	// IP is the neighbour's address or, in a forwarding table, the VTEP's.
	IP    netip.Addr
	MAC   string
	State string // as ip neigh prints it
}

// String returns the entry as one line.
func (n Neighbour) String() string { return n.IP.String() + " " + n.MAC + " " + n.State }

// Permanent reports whether the entry does not age.
func (n Neighbour) Permanent() bool { return strings.Contains(n.State, "PERMANENT") }

// Rule is an nftables rule.
type Rule struct {
	Family, Table, Chain string
	// Handle is given once, so a rule that was deleted and written again has another one.
	Handle uint64
	// Text reads much as nft prints the rule. Exact tells all that it does, without counts and comments, for
	// comparing two rules.
	Text, Exact string
}

// Link finds a device by name.
func (s State) Link(name string) (Link, bool) {
	return find(s.Links, func(l Link) bool { return l.Name == name })
}

// LinkAt finds a device by index.
func (s State) LinkAt(index int) (Link, bool) {
	return find(s.Links, func(l Link) bool { return l.Index == index })
}

// Neighbour finds the neighbour entry for an address on a device.
func (s State) Neighbour(device string, ip netip.Addr) (Neighbour, bool) {
	return find(s.Neighbours, func(n Neighbour) bool { return n.Device == device && n.IP == ip })
}

func find[T any](all []T, is func(T) bool) (T, bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	var none T
	return none, false
}

// AddressesOf lists the addresses of a device.
func (s State) AddressesOf(device string) (all []netip.Prefix) {
	for _, a := range s.Addresses {
		if a.Device == device {
			all = append(all, a.Prefix)
		}
	}
	return all
}

// Holds reports whether an address is one of the namespace's own.
func (s State) Holds(a netip.Addr) bool {
	return slices.ContainsFunc(s.Addresses, func(have Address) bool { return have.Prefix.Addr() == a })
}

// Lookup does what the kernel does with its default policy: the longest prefix in the table local, then in
// main, then in default; of equal ones that with the lowest metric. Policy rules beyond these are not known,
// and of a multipath route the first hop stands for all.
func (s State) Lookup(dst netip.Addr) (Route, bool) {
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
		if len(best.Hops) > 0 {
			best.Via, best.Device = best.Hops[0].Via, best.Hops[0].Device
		}
		if found && best.Type != "throw" {
			return best, true
		}
	}
	return Route{}, false
}

// Sysctl returns a number out of Sysctls; 0 when it is not known.
func (s State) Sysctl(path string) int {
	n, err := strconv.Atoi(s.Sysctls[path])
	if err != nil {
		return 0
	}
	return n
}
