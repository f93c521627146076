package kernel

import (
	"net/netip"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

func TestLegacyRepair(t *testing.T) {
	network := netip.MustParsePrefix("10.5.0.0/16")
	const (
		from = `-A FORWARD -s 10.5.0.0/16 -m comment --comment "overlay forward" -j ACCEPT` + "\n"
		to   = `-A FORWARD -d 10.5.0.0/16 -m comment --comment "overlay forward" -j ACCEPT` + "\n"
	)
	split := func(text string) []string {
		fields := strings.Split(text, " ")
		for i := range fields {
			fields[i] = strings.ReplaceAll(fields[i], "_", " ")
		}
		return fields
	}
	insert := [][]string{
		split("-I FORWARD 1 -s 10.5.0.0/16 -m comment --comment overlay_forward -j ACCEPT"),
		split("-I FORWARD 2 -d 10.5.0.0/16 -m comment --comment overlay_forward -j ACCEPT"),
	}
	for name, c := range map[string]struct {
		listing string
		want    [][]string
		blocks  string
	}{
		"open":                {"-P FORWARD ACCEPT\n-A FORWARD -i eth9 -j DROP\n", nil, ""},
		"policy":              {"-P FORWARD DROP\n", insert, "policy drop"},
		"policy, let through": {"-P FORWARD DROP\n" + from + to + "-A FORWARD -j DOCKER\n", nil, ""},
		"catch-all reject": {
			"-P FORWARD ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-port-unreachable\n",
			insert, "the rule -j REJECT --reject-with icmp-port-unreachable",
		},
		"catch-all drop": {"-P FORWARD ACCEPT\n-A FORWARD -j DROP\n", insert, "the rule -j DROP"},
		"another's put in front": {
			"-P FORWARD DROP\n-A FORWARD -j DROP\n" + from,
			append([][]string{
				split("-D FORWARD -s 10.5.0.0/16 -m comment --comment overlay_forward -j ACCEPT"),
			}, insert...), "policy drop",
		},
	} {
		got, blocks := legacyRepair(c.listing, network)
		if !reflect.DeepEqual(got, c.want) || blocks != c.blocks {
			t.Errorf("%s:\n got %q, %s\nwant %q, %s", name, got, blocks, c.want, c.blocks)
		}
	}
}

func TestLegacyPolicyDropIsPassedThrough(t *testing.T) {
	path, err := exec.LookPath("iptables-legacy")
	if err != nil {
		t.Skip("skipped: no iptables-legacy program here (Debian's package iptables has it)")
	}
	h := newHost(t)
	iptables := func(args ...string) (string, error) {
		var out string
		err := ns.Do(h.handle, func() (err error) {
			out, err = runLegacy(t.Context(), path, args...)
			return err
		})
		return out, err
	}
	if _, err := iptables("-P", "FORWARD", "DROP"); err != nil {
		t.Skipf("skipped: this kernel has no legacy iptables: %v", err)
	}
	h.apply(state(1))
	listing, err := iptables("-S", "FORWARD")
	must(t, err)
	if commands, _ := legacyRepair(listing, state(1).Rules[0].Network); commands != nil ||
		!strings.Contains(listing, legacyComment) {
		t.Errorf("the network is not let through:\n%s", listing)
	}
	if changes := h.apply(state(1)); len(changes) != 0 {
		t.Errorf("a pass with nothing to do changed %v", changes)
	}
}

func TestBlackholeRoute(t *testing.T) {
	h := newHost(t)
	s := state(1)
	own := s.Rules[0].Subnet
	s.Blackholes = append(s.Blackholes, own)
	theirs := &netlink.Route{Dst: cidr("10.99.0.0/24"), Type: unix.RTN_BLACKHOLE}
	must(t, h.nl.RouteAdd(theirs))
	count := func() (n int) {
		list, err := h.nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Type: unix.RTN_BLACKHOLE},
			netlink.RT_FILTER_TYPE)
		must(t, err)
		return len(list)
	}
	h.apply(s)
	if changes := h.apply(s); len(changes) != 0 || count() != 2 {
		t.Fatalf("%d blackholes, and the second pass changed %v", count(), changes)
	}
	// The bridge's own route comes first whenever it is added.
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(t, h.nl.LinkAdd(bridge))
	must(t, h.nl.LinkSetUp(bridge))
	gateway := netip.PrefixFrom(own.Addr().Next(), own.Bits())
	must(t, h.nl.AddrAdd(bridge, &netlink.Addr{IPNet: toIPNet(gateway)}))
	routes, err := h.nl.RouteGet(gateway.Addr().Next().AsSlice())
	if err != nil || routes[0].LinkIndex != bridge.Attrs().Index {
		t.Fatalf("%v, %v", routes, err)
	}
	h.apply(state(1))
	if count() != 1 {
		t.Errorf("%d blackholes, want the foreign one", count())
	}
}
