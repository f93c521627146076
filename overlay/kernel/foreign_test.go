package kernel

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/nemesh/nemesh/harness/ns"
)

// forwardChain makes a base chain at the forward hook, as iptables-nft or somebody else does.
func (h host) forwardChain(table, chain string, policy nftables.ChainPolicy, rules ...[]expr.Any) {
	h.tb.Helper()
	h.forwardChainOf(nftables.TableFamilyIPv4, table, chain, policy, rules...)
}

func (h host) forwardChainOf(
	family nftables.TableFamily, table, chain string, policy nftables.ChainPolicy, rules ...[]expr.Any,
) {
	h.tb.Helper()
	conn := h.nftables()
	c := conn.AddChain(&nftables.Chain{
		Name: chain, Type: nftables.ChainTypeFilter,
		Table:   conn.AddTable(&nftables.Table{Name: table, Family: family}),
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy,
	})
	for _, r := range rules {
		conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: r})
	}
	must(h.tb, conn.Flush())
}

// accepts counts the overlay's rules at the top of a chain.
func (h host) accepts(table, chain string) int {
	h.tb.Helper()
	t := &nftables.Table{Name: table, Family: nftables.TableFamilyIPv4}
	rules, err := h.nftables().GetRules(t, &nftables.Chain{Name: chain, Table: t})
	must(h.tb, err)
	n := 0
	for n < len(rules) && string(rules[n].UserData) == foreignTag {
		n++
	}
	return n
}

func TestForwardPolicyDropIsPassedThrough(t *testing.T) {
	h := newHost(t)
	h.run(state(1))
	h.forwardChain("filter", "FORWARD", nftables.ChainPolicyDrop)
	h.eventually(
		"two rules let the network through",
		func() bool { return h.accepts("filter", "FORWARD") == 2 },
	)
	conn := h.nftables()
	conn.FlushTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
	must(t, conn.Flush())
	h.eventually("they are back", func() bool { return h.accepts("filter", "FORWARD") == 2 })
	if changes := h.apply(state(1)); len(changes) != 0 {
		t.Errorf("a pass with nothing to do changed %v", changes)
	}
}

func TestCatchAllRejectIsPassedThrough(t *testing.T) {
	h := newHost(t)
	h.forwardChain(
		"filter",
		"FORWARD",
		nftables.ChainPolicyAccept,
		[]expr.Any{&expr.Counter{}, &expr.Reject{Type: 0, Code: 1}},
	)
	h.apply(state(1))
	if n := h.accepts("filter", "FORWARD"); n != 2 {
		t.Errorf("%d rules let the network through", n)
	}
}

func TestOpenForwardChainIsLeftAlone(t *testing.T) {
	h := newHost(t)
	h.forwardChain("filter", "FORWARD", nftables.ChainPolicyAccept,
		append(source(netip.MustParsePrefix("192.0.2.0/24"), true), &expr.Verdict{Kind: expr.VerdictDrop}))
	h.apply(state(1))
	if n := h.accepts("filter", "FORWARD"); n != 0 {
		t.Errorf("%d rules were written", n)
	}
}

func TestForeignChainThatDropsIsNamed(t *testing.T) {
	passes := func(prefix string) [][]expr.Any {
		accept := &expr.Verdict{Kind: expr.VerdictAccept}
		return [][]expr.Any{append(source(netip.MustParsePrefix(prefix), true), accept)}
	}
	for name, c := range map[string]struct {
		family nftables.TableFamily
		table  string
		rules  [][]expr.Any
		named  bool
	}{
		"of IPv4":                        {family: nftables.TableFamilyIPv4, table: "theirs", named: true},
		"of both families":               {family: nftables.TableFamilyINet, table: "theirs", named: true},
		"of both families, as iptables'": {family: nftables.TableFamilyINet, table: "filter", named: true},
		"that lets the network through":  {nftables.TableFamilyINet, "theirs", passes("10.5.0.0/16"), false},
		"that lets only others through":  {nftables.TableFamilyINet, "theirs", passes("10.6.0.0/16"), true},
		"that lets a part of it through": {nftables.TableFamilyIPv4, "theirs", passes("10.5.9.0/24"), true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.forwardChainOf(c.family, c.table, "FORWARD", nftables.ChainPolicyDrop, c.rules...)
			err := ns.Do(h.handle, func() error {
				r, err := New(Options{Log: slog.New(slog.DiscardHandler)})
				must(t, err)
				r.Set(state(1))
				_, err = r.Apply(t.Context())
				return err
			})
			named := err != nil &&
				strings.Contains(err.Error(), "policy drop in chain FORWARD of nftables table "+c.table)
			if named != c.named || !named && err != nil {
				t.Errorf("got %v", err)
			}
			table := &nftables.Table{Name: c.table, Family: c.family}
			rules, err := h.nftables().GetRules(table, &nftables.Chain{Name: "FORWARD", Table: table})
			if err != nil || len(rules) != len(c.rules) {
				t.Errorf("somebody else's chain has %d rules, %v", len(rules), err)
			}
		})
	}
}
