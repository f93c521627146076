package observe

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Lines are a State for people and for the record: lines that read like those of ip and bridge. Addresses,
// routes and neighbours are those of IPv4, and routes those of the main table. All but the links are sorted.
type Lines struct {
	Links, Addresses, Routes, Neighbours, FDB []string
	// Rules count the nftables rules of each chain.
	Rules []string
}

// Lines renders the state.
func (s State) Lines() Lines {
	var t Lines
	for _, l := range s.Links {
		t.Links = append(t.Links, l.line())
	}
	for _, a := range s.Addresses {
		if a.Prefix.Addr().Is4() {
			t.Addresses = append(t.Addresses, fmt.Sprintf("%s dev %s", a.Prefix, a.Device))
		}
	}
	for _, r := range s.Routes {
		if r.Table == unix.RT_TABLE_MAIN && r.Dst.Addr().Is4() {
			t.Routes = append(t.Routes, r.String())
		}
	}
	for _, n := range s.Neighbours {
		if n.IP.Is4() {
			t.Neighbours = append(t.Neighbours,
				fmt.Sprintf("%s dev %s lladdr %s %s", n.IP, n.Device, orNone(n.MAC), n.State))
		}
	}
	for _, n := range s.FDB {
		t.FDB = append(t.FDB, fmt.Sprintf("%s dev %s dst %s %s", orNone(n.MAC), n.Device, orNil(n.IP),
			strings.ToLower(n.State)))
	}
	chains := map[string]int{}
	for _, r := range s.Rules {
		chains[r.Table+" "+r.Chain]++
	}
	for chain, n := range chains {
		t.Rules = append(t.Rules, fmt.Sprintf("rules in %s: %d", chain, n))
	}
	for _, lines := range [][]string{t.Rules, t.Addresses, t.Routes, t.Neighbours, t.FDB} {
		slices.Sort(lines)
	}
	return t
}

func (l Link) line() string {
	state := "DOWN"
	if l.Up {
		state = "UP"
	}
	text := fmt.Sprintf("%s: %s mtu %d %s link/ether %s", l.Name, state, l.MTU, l.Type, orNone(l.MAC))
	if l.Type == "vxlan" {
		text += fmt.Sprintf(" id %d local %s dstport %d", l.VNI, orNil(l.Local), l.Port)
		if l.Learning {
			text += " learning"
		}
	}
	return text
}

func orNone(mac string) string { return cmp.Or(mac, "none") }

// orNil renders an address; one that is not there as records always have.
func orNil(a netip.Addr) string {
	if !a.IsValid() {
		return "<nil>"
	}
	return a.String()
}
