// Package lease acquires, renews, reclaims and watches subnet leases in etcd.
//
// Keys, under the prefix that flannel uses too (flannel's pkg/subnet/etcd/registry.go):
//
//	<prefix>/config            the network configuration, read only
//	<prefix>/subnets/<subnet>  one per node, attached to an etcd lease; without one it is a reservation
//	<prefix>/owners/<subnet>   who had the subnet last; ours only, without TTL, ignored by flannel
//
// Decisions, such as which subnet to take and which record counts, are pure functions. They are apart from
// the requests to etcd.
package lease

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Lease is one key under subnets/.
type Lease struct {
	Subnet Subnet
	Attrs  Attrs
	// ID is the etcd lease that the key hangs on; 0 for a reservation, which never expires.
	ID int64
	// ModRevision is the key's, for transactions that must not overwrite a newer one.
	ModRevision int64
}

// Reservation reports whether an operator has reserved the subnet: the key has no TTL.
func (l Lease) Reservation() bool { return l.ID == 0 }

// Owner is one key under owners/: the node that last held a subnet. While the node's lease is gone, the
// record keeps its peers' kernel entries and has other subnets given away first.
type Owner struct {
	Subnet Subnet `json:"-"`
	Attrs  Attrs
	// Node is the owner's name and Instance the identity it keeps on its disk, which tells a node that came
	// back from another that was given the same address.
	Node, Instance string
	// Seen is when the owner last renewed and TTL how long its lease lived from then, in seconds.
	Seen time.Time
	TTL  int64

	ModRevision int64 `json:"-"`
}

// Until returns when the record stops to explain entries: the time hold after the lease of its last renewal
// ends.
func (o Owner) Until(hold time.Duration) time.Time {
	return o.Seen.Add(time.Duration(o.TTL)*time.Second + hold)
}

// View is what etcd holds at one revision.
type View struct {
	Revision int64
	// Config is the raw network configuration; nil when there is none.
	Config []byte
	// Leases and Owners are sorted by key.
	Leases []Lease
	Owners []Owner
	// Junk are keys of subnets whose value is no lease: nobody holds them, and nobody else can take them. Their
	// attributes are those that the key had before, as far as that was seen.
	Junk []Lease
	// Ignored lists the keys that are no lease or record, each with the reason.
	Ignored []Ignored
	// Rewound says that etcd's history is not the one that was followed before: it was emptied, or restored
	// from a snapshot. What is missing then was not given up by anybody.
	Rewound bool
	// Listed says that the view was listed, not put together from what a watch reported.
	Listed bool
}

// Ignored is a key that was left out of a View.
type Ignored struct {
	Key    string
	Reason string
}

// Of returns the lease with the given public addresses, if there is one. A zero address stands for a family
// that is not asked for.
func (v View) Of(ip, ip6 netip.Addr) (Lease, bool) {
	for _, l := range v.Leases {
		if sameNode(l.Attrs, ip, ip6) {
			return l, true
		}
	}
	return Lease{}, false
}

// mine returns the lease of the node that asks.
func (v View) mine(r Request) (Lease, bool) {
	for _, l := range v.Leases {
		if r.LeaseID != 0 && l.ID == r.LeaseID {
			return l, true
		}
	}
	return v.Of(r.IP, r.IP6)
}

// At returns the lease over exactly this subnet, if there is one.
func (v View) At(s Subnet) (Lease, bool) {
	for _, l := range v.Leases {
		if l.Subnet == s {
			return l, true
		}
	}
	return Lease{}, false
}

// junkAt returns the junk over exactly this subnet, if there is any.
func (v View) junkAt(s Subnet) (Lease, bool) {
	for _, l := range v.Junk {
		if l.Subnet == s {
			return l, true
		}
	}
	return Lease{}, false
}

// OwnerOf returns the record of exactly this subnet, if there is one.
func (v View) OwnerOf(s Subnet) (Owner, bool) {
	for _, o := range v.Owners {
		if o.Subnet == s {
			return o, true
		}
	}
	return Owner{}, false
}

func sameNode(a Attrs, ip, ip6 netip.Addr) bool {
	if ip.IsValid() {
		return a.PublicIP == ip
	}
	return ip6.IsValid() && a.PublicIPv6 == ip6
}

// parseLease reads a key under subnets/. With an error, the subnet is set if the key at least is one's.
func parseLease(key string, value []byte, id, rev int64) (Lease, error) {
	s, err := ParseKey(key)
	if err != nil {
		return Lease{}, err
	}
	l := Lease{Subnet: s, ID: id, ModRevision: rev}
	return l, json.Unmarshal(value, &l.Attrs)
}

func parseOwner(key string, value []byte, rev int64) (Owner, error) {
	s, err := ParseKey(key)
	if err != nil {
		return Owner{}, err
	}
	o := Owner{}
	if err := json.Unmarshal(value, &o); err != nil {
		return Owner{}, fmt.Errorf("not an owner's record: %w", err)
	}
	o.Subnet, o.ModRevision = s, rev
	return o, nil
}

// Sort puts a view into the order of its keys. A view of etcd has that order already.
func (v *View) Sort() {
	slices.SortFunc(v.Leases, func(a, b Lease) int { return strings.Compare(a.Subnet.Key(), b.Subnet.Key()) })
	slices.SortFunc(v.Owners, func(a, b Owner) int { return strings.Compare(a.Subnet.Key(), b.Subnet.Key()) })
}

// Put adds a lease that was just written to the view, or replaces it there.
func (v *View) Put(l Lease) {
	v.Leases = slices.DeleteFunc(v.Leases, func(o Lease) bool { return o.Subnet == l.Subnet })
	v.Leases = append(v.Leases, l)
	v.Sort()
}
