//go:build defects

package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/plan"
)

// RemoveDevices removes every VXLAN device of the overlay's naming.
func RemoveDevices() error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	links, err := dump(nl.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var errs []error
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "flannel") {
			errs = append(errs, nl.LinkDel(l))
		}
	}
	return errors.Join(errs...)
}

// Leftovers reads the routes, neighbours and forwarding entries that a plan's devices have.
func Leftovers(s plan.State) (plan.State, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return plan.State{}, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	p := pass{nl: nl, want: s}
	links := map[string]netlink.Link{}
	var there plan.State
	for _, d := range s.Devices {
		link, err := nl.LinkByName(d.Name)
		if err != nil {
			return plan.State{}, nil // a first start: nothing is left
		}
		links[d.Name] = link
		fdb, err := p.haveFDB(d.Name, link.Attrs().Index)
		if err != nil {
			return plan.State{}, err
		}
		neighbours, err := p.haveNeighbours(d.Name, link.Attrs().Index)
		if err != nil {
			return plan.State{}, err
		}
		there.FDB, there.Neighbours = append(there.FDB, fdb...), append(there.Neighbours, neighbours...)
	}
	if uplink, err := nl.LinkByName(s.Uplink); err == nil {
		links[s.Uplink] = uplink
	}
	routes, err := p.haveRoutes(links)
	for _, r := range routes {
		there.Routes = append(there.Routes, r.Route)
	}
	return there, err
}

// AddressesOf counts the addresses of a link; 0 if there is none.
func AddressesOf(name string) (int, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	link, err := nl.LinkByName(name)
	if err != nil {
		return 0, nil
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return nl.AddrList(link, netlink.FAMILY_V4) })
	return len(addrs), err
}

// MTUOf returns the MTU of a link, if there is one.
func MTUOf(name string) (int, bool) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, false
	}
	return link.Attrs().MTU, true
}

// AppendRules adds a plan's rules behind those that the overlay's table holds.
func AppendRules(s plan.State) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	for _, want := range s.Rules {
		table := conn.AddTable(&nftables.Table{Name: tableName, Family: familyOf(want)})
		byName := map[string]*nftables.Chain{}
		for _, c := range chains(table) {
			byName[c.Name] = conn.AddChain(c)
		}
		for _, r := range compile(want) {
			conn.AddRule(&nftables.Rule{
				Table: table, Chain: byName[r.chain], UserData: []byte(r.tag), Exprs: r.exprs,
			})
		}
	}
	return conn.Flush()
}
