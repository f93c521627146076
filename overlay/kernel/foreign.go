package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/plan"
)

// A packet that one nftables table accepts can still be dropped by another table. So the overlay's own table
// does not help against a FORWARD chain of iptables that drops (flannel#799). Where iptables keeps its rules
// in nftables, two accepting rules at the top of that chain do. They are written by netlink in the form that
// iptables uses (payload, compare, counter, verdict), so that `iptables -L` shows them. Chains of other
// programs are not changed, only named in the log.

// iptablesTable and iptablesChain are where iptables-nft keeps its filter rules (nft's xtables-nft-multi).
const (
	iptablesTable = "filter"
	iptablesChain = "FORWARD"
	foreignTag    = "overlay forward"
)

// foreign makes chains at the forward hook pass the network's packets, where they would drop them.
func (p *pass) foreign(conn *nftables.Conn, want plan.Rules) {
	if !want.Forward {
		return
	}
	var list []*nftables.Chain
	for _, family := range []nftables.TableFamily{familyOf(want), nftables.TableFamilyINet} {
		chains, err := dump(func() ([]*nftables.Chain, error) { return conn.ListChainsOfTableFamily(family) })
		if err != nil {
			p.fail(fmt.Errorf("list nftables chains: %w", err))
			return
		}
		list = append(list, chains...)
	}
	for _, c := range list {
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward || c.Table.Name == tableName {
			continue
		}
		if err := p.passThrough(conn, c, want); err != nil {
			p.fail(err)
		}
	}
}

// passThrough adds the accepting rules to one chain, if it would drop the packets and belongs to iptables.
func (p *pass) passThrough(conn *nftables.Conn, c *nftables.Chain, want plan.Rules) error {
	rules, err := dump(func() ([]*nftables.Rule, error) { return conn.GetRules(c.Table, c) })
	if errors.Is(err, unix.ENOENT) {
		return nil // gone meanwhile
	}
	if err != nil {
		return fmt.Errorf("list rules of chain %s: %w", c.Name, err)
	}
	if len(rules) >= 2 && string(rules[0].UserData) == foreignTag && string(rules[1].UserData) == foreignTag {
		return nil
	}
	blocks := blocker(c, rules)
	if blocks == "" {
		return nil
	}
	if c.Table.Name != iptablesTable || c.Name != iptablesChain || c.Table.Family != familyOf(want) {
		if slices.ContainsFunc(rules, func(r *nftables.Rule) bool { return lets(r, want.Network) }) {
			return nil // its owner has seen to it
		}
		return fmt.Errorf("%s in chain %s of nftables table %s drops what is forwarded: let %s through it",
			blocks, c.Name, c.Table.Name, want.Network)
	}
	for _, r := range rules { // half of ours, after somebody deleted the other half
		if string(r.UserData) == foreignTag {
			if err := conn.DelRule(r); err != nil {
				return fmt.Errorf("rewrite chain %s: %w", c.Name, err)
			}
		}
	}
	for _, match := range [][]expr.Any{source(want.Network, true), destination(want.Network, true)} {
		exprs := append(match, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept})
		conn.InsertRule(&nftables.Rule{Table: c.Table, Chain: c, UserData: []byte(foreignTag), Exprs: exprs})
	}
	p.do("rules", fmt.Sprintf("accept %s in chain %s, where %s would drop it", want.Network, c.Name, blocks),
		conn.Flush())
	return nil
}

// lets reports whether a rule accepts by the network's address.
func lets(r *nftables.Rule, network netip.Prefix) bool {
	names := false
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Cmp:
			// nft compares as many bytes as the prefix has, if those are whole.
			names = names || e.Op == expr.CmpOpEq && len(e.Data)*8 >= network.Bits() &&
				bytes.HasPrefix(network.Masked().Addr().AsSlice(), e.Data)
		case *expr.Verdict:
			return names && e.Kind == expr.VerdictAccept
		}
	}
	return false
}

// blocker returns what drops the packets that no rule of a chain accepts: the policy, or a rule without a
// condition. It is "" if nothing does.
func blocker(c *nftables.Chain, rules []*nftables.Rule) string {
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		return "policy drop"
	}
	for _, r := range rules {
		if unconditional(r) {
			return "a catch-all rule"
		}
	}
	return ""
}

// unconditional reports whether a rule drops or rejects everything that reaches it.
func unconditional(r *nftables.Rule) bool {
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			return true
		case *expr.Target: // iptables-nft writes REJECT as an extension
			return e.Name == "REJECT" || e.Name == "DROP"
		case *expr.Verdict:
			return e.Kind == expr.VerdictDrop
		default:
			return false
		}
	}
	return false
}
