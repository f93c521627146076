package kernel

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/nemesh/nemesh/harness/netspace"
)

// forwardChain makes a base chain at the forward hook, as iptables-nft or somebody else does.
func (h host) forwardChain(table, chain string, policy nftables.ChainPolicy, rules ...[]expr.Any) {
	h.tb.Helper()
	conn := h.nftables()
	c := conn.AddChain(&nftables.Chain{Name: chain, Type: nftables.ChainTypeFilter,
		Table:   conn.AddTable(&nftables.Table{Name: table, Family: nftables.TableFamilyIPv4}),
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy})
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
	h := newHost(t)
	h.forwardChain("theirs", "guard", nftables.ChainPolicyDrop)
	err := netspace.Do(h.ns, func() error {
		r, err := New(Options{Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		r.Set(state(1))
		_, err = r.Apply(t.Context())
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "policy drop in chain guard of nftables table theirs") {
		t.Errorf("got %v", err)
	}
	if n := h.accepts("theirs", "guard"); n != 0 {
		t.Errorf("%d rules were written into somebody else's chain", n)
	}
}
