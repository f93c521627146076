package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/nemesh/nemesh/overlay/netconf"
)

// Request is what a node says of itself when it asks for a subnet.
type Request struct {
	Config netconf.Config
	// IP and IP6 are the node's public addresses; the zero address for a family it has not.
	IP, IP6 netip.Addr
	// Node and Instance are the node's name and the identity on its disk.
	Node, Instance string
	// LeaseID is the etcd lease that the node holds, if it holds one: what hangs on it is the node's whatever
	// public address it names.
	LeaseID int64
	// Previous is the subnet the node had last, as far as it remembers.
	Previous Subnet
	// Avoid is never chosen. Only a defect sets it.
	Avoid Subnet
	// Hold is how long a record protects its owner's subnet after the lease ended, counted at Now.
	Hold time.Duration
	Now  time.Time
	// Mixed says that keys of the network take more than one form, as IPv4 alone and both families, so that two
	// that clash need not be equal: then the choice counts only while no key has changed since the view.
	Mixed bool
	// Pick returns a number from 0 to n-1; at random in the agent, so that nodes starting together rarely
	// collide.
	Pick func(n int) int
}

// Choice is the subnet that a node should take.
type Choice struct {
	Subnet Subnet
	// Existing is the lease that the node holds already and should take over or go on with.
	Existing *Lease
	// Unfit is a lease of the node that the configuration does not allow any more; it is to be given up.
	Unfit *Lease
	// Why says how the choice was made; Held that the subnet is inside its last owner's hold.
	Why  string
	Held bool
	// Since, unless 0, is the revision after which no key may have changed for the choice to count.
	Since int64
}

// ErrExhausted says that every subnet of the network is leased.
var ErrExhausted = errors.New("no free subnet")

// TakenError says that another node has this node's public address.
type TakenError struct {
	IP    netip.Addr
	Owner Owner
}

// Error names the other node.
func (e *TakenError) Error() string {
	return fmt.Sprintf(
		"public address %s belongs to node %q, which holds %s: two nodes cannot share it; give this "+
			"one another with --public-ip or --iface, or delete the other's lease",
		e.IP,
		e.Owner.Node,
		e.Owner.Subnet,
	)
}

// candidates bounds how many free subnets are looked at before one is picked, as flannel does.
const candidates = 100

// Choose decides which subnet a node should have. In this order: the one that it holds, the one that it had,
// one that nobody has owned, the one whose owner has been silent longest.
func Choose(v View, r Request) (Choice, error) {
	c := Choice{}
	if r.Mixed {
		c.Since = v.Revision
	}
	if l, ok := v.mine(r); ok && l.Subnet != r.Avoid {
		o, ok := v.OwnerOf(l.Subnet)
		if ok && sameNode(o.Attrs, r.IP, r.IP6) && o.Instance != r.Instance && o.Node != r.Node &&
			!l.Reservation() {
			return Choice{}, &TakenError{IP: Attrs{PublicIP: r.IP, PublicIPv6: r.IP6}.Node(), Owner: o}
		}
		if fits(r.Config, l.Subnet) {
			return Choice{Subnet: l.Subnet, Existing: &l, Why: "held already", Since: c.Since}, nil
		}
		c.Unfit = &l
	}
	others := inTheWay(v, r, c.Unfit)
	had := []Subnet{r.Previous}
	if c.Unfit != nil {
		had = []Subnet{c.Unfit.Subnet, r.Previous}
	}
	if p := r.Previous; !p.IsZero() && p != r.Avoid && fits(r.Config, p) && !anyOverlap(others, p) {
		c.Subnet, c.Why = p, "had before"
		if junk, ok := v.junkAt(p); ok {
			c.Existing = &junk // overwritten by somebody, and this node's own according to the record
		}
		return c, nil
	}
	// A node that gains or loses a family keeps its prefix of the other one: its pods have addresses out of it.
	keep := func(on bool, of func(Subnet) netip.Prefix, rng netconf.Range) netip.Prefix {
		for _, s := range had {
			if p := of(s); on && p.IsValid() && p != of(r.Avoid) && rng.Contains(p) && !taken(of, others, p) {
				c.Why = "had before in part"
				return p
			}
		}
		return netip.Prefix{}
	}
	var err error
	if c.Subnet.V4 = keep(
		r.Config.EnableIPv4,
		v4,
		r.Config.IPv4,
	); r.Config.EnableIPv4 &&
		!c.Subnet.V4.IsValid() {
		if c.Subnet.V4, err = pick(v4, r.Config.IPv4, v, others, r, &c); err != nil {
			return Choice{}, err
		}
	}
	if c.Subnet.V6 = keep(
		r.Config.EnableIPv6,
		v6,
		r.Config.IPv6,
	); r.Config.EnableIPv6 &&
		!c.Subnet.V6.IsValid() {
		if c.Subnet.V6, err = pick(v6, r.Config.IPv6, v, others, r, &c); err != nil {
			return Choice{}, err
		}
	}
	return c, nil
}

// inTheWay lists the leases that keep subnets from being handed out: those of other nodes, and junk unless
// it is over this node's own subnet by the records. A key that covers the whole network is not counted.
func inTheWay(v View, r Request, unfit *Lease) []Lease {
	covers := func(p, network netip.Prefix) bool { return p.IsValid() && p.Bits() <= network.Bits() }
	var others []Lease
	for _, l := range v.Leases {
		if covers(l.Subnet.V4, r.Config.IPv4.Network) || covers(l.Subnet.V6, r.Config.IPv6.Network) ||
			unfit != nil && l.Subnet == unfit.Subnet {
			continue
		}
		others = append(others, l)
	}
	for _, l := range v.Junk {
		o, ok := v.OwnerOf(l.Subnet)
		if mine := ok && o.Instance == r.Instance; !mine {
			others = append(others, l)
		}
	}
	return others
}

func v4(s Subnet) netip.Prefix { return s.V4 }
func v6(s Subnet) netip.Prefix { return s.V6 }

// fits reports whether the configuration allows the subnet.
func fits(c netconf.Config, s Subnet) bool {
	return c.EnableIPv4 == s.V4.IsValid() && c.EnableIPv6 == s.V6.IsValid() &&
		(!c.EnableIPv4 || c.IPv4.Contains(s.V4)) && (!c.EnableIPv6 || c.IPv6.Contains(s.V6))
}

func anyOverlap(leases []Lease, s Subnet) bool {
	for _, l := range leases {
		if l.Subnet.Overlaps(s) {
			return true
		}
	}
	return false
}

// pick chooses the prefix of one family.
func pick(
	of func(Subnet) netip.Prefix,
	rng netconf.Range,
	v View,
	others []Lease,
	r Request,
	c *Choice,
) (netip.Prefix, error) {
	owners := map[netip.Prefix]Owner{}
	for _, o := range v.Owners {
		owners[of(o.Subnet)] = o
	}
	var fresh, owned []netip.Prefix
	for p := rng.Min; ; p = netconf.Next(p) {
		_, hasOwner := owners[p]
		switch {
		case p == of(r.Avoid) || taken(of, others, p):
		case hasOwner:
			owned = append(owned, p)
		default:
			fresh = append(fresh, p)
		}
		if p == rng.Max || len(fresh) == candidates {
			break
		}
	}
	if len(fresh) > 0 {
		c.Why = "never owned"
		return fresh[r.Pick(len(fresh))], nil
	}
	if len(owned) == 0 {
		return netip.Prefix{}, fmt.Errorf(
			"%w: all %d leases of %s are in use; delete leases of nodes that are gone "+
				"(overlayd --leave on each), or enlarge the network",
			ErrExhausted,
			len(others),
			rng.Network,
		)
	}
	sort.SliceStable(owned, func(i, j int) bool { return owners[owned[i]].Seen.Before(owners[owned[j]].Seen) })
	c.Why = "its owner has been silent longest"
	c.Held = r.Now.Before(owners[owned[0]].Until(r.Hold))
	return owned[0], nil
}

func taken(of func(Subnet) netip.Prefix, others []Lease, p netip.Prefix) bool {
	for _, l := range others {
		if overlap(of(l.Subnet), p) {
			return true
		}
	}
	return false
}

// Peers returns what explains the kernel entries of other nodes: their leases, and the records of owners
// without a lease, while the hold lasts and nobody else has the subnet. The order is that of trust: leases
// with a record, records, other leases, and last the leases whose key was overwritten with nonsense, which
// stay as they were.
//
// A record of a node that has moved explains nothing. Of two leases with one public address the one with a
// record counts; the other is in doubt. A record ends when a lease takes its subnet; the caller decides
// which leases take. next is when the first of the returned records ends; it is zero if none does.
func Peers(
	v View, own Subnet, ip, ip6 netip.Addr, hold time.Duration, now time.Time, takes func(Lease) bool,
) (peers []Lease, doubt []Ignored, next time.Time) {
	recorded := map[netip.Addr]Subnet{}
	for _, l := range v.Leases {
		if o, ok := v.OwnerOf(l.Subnet); ok && sameNode(o.Attrs, l.Attrs.PublicIP, l.Attrs.PublicIPv6) {
			recorded[l.Attrs.Node()] = l.Subnet
		}
	}
	alive := map[netip.Addr]bool{}
	var others, taking []Lease
	for _, l := range v.Leases {
		if sameNode(l.Attrs, ip, ip6) {
			continue
		}
		s, ok := recorded[l.Attrs.Node()]
		switch {
		case ok && s != l.Subnet:
			doubt = append(
				doubt,
				Ignored{Key: l.Subnet.Key(), Reason: l.Attrs.Node().String() + " has " + s.String()},
			)
			continue
		case ok:
			peers = append(peers, l)
		default:
			others = append(others, l)
		}
		if takes(l) {
			alive[l.Attrs.Node()] = true
			taking = append(taking, l)
		}
	}
	for _, o := range v.Owners {
		until := o.Until(hold)
		if sameNode(o.Attrs, ip, ip6) || alive[o.Attrs.Node()] || o.Subnet.Overlaps(own) ||
			anyOverlap(taking, o.Subnet) || !now.Before(until) {
			continue
		}
		if _, ok := recorded[o.Attrs.Node()]; ok {
			continue // it has moved, to a lease that this node cannot use
		}
		peers = append(peers, Lease{Subnet: o.Subnet, Attrs: o.Attrs})
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	peers = append(peers, others...)
	for _, l := range v.Junk {
		explained := func(p Lease) bool { return p.Attrs.Node() == l.Attrs.Node() }
		if l.Attrs.Node().IsValid() && !sameNode(l.Attrs, ip, ip6) && !l.Subnet.Overlaps(own) &&
			!slices.ContainsFunc(peers, explained) {
			peers = append(peers, l)
		}
	}
	return peers, doubt, next
}

// Missing returns the peers of a view that a later view has neither by subnet nor by address, as records
// that begin now. They are those that etcd forgot when its history went back.
func Missing(before, after View, now time.Time) []Owner {
	known := func(s Subnet, a Attrs) bool {
		_, byAddress := after.Of(a.PublicIP, a.PublicIPv6)
		_, bySubnet := after.At(s)
		_, byRecord := after.OwnerOf(s)
		return byAddress || bySubnet || byRecord
	}
	var missing []Owner
	listed := map[Subnet]bool{}
	add := func(s Subnet, a Attrs) {
		if !known(s, a) && !listed[s] {
			listed[s] = true
			missing = append(missing, Owner{Subnet: s, Attrs: a, Seen: now})
		}
	}
	for _, l := range before.Leases {
		add(l.Subnet, l.Attrs)
	}
	for _, o := range before.Owners {
		add(o.Subnet, o.Attrs)
	}
	return missing
}
