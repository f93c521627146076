package fault

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
)

// forwardTag marks what a fault has put into the FORWARD chain.
const forwardTag = "nemesh fault"

// forward makes sure that iptables-nft's FORWARD chain is there, gives it a policy and, if asked for, a last
// rule. The undo takes the rule away and gives the policy back; a table that was not there before goes.
func forward(m *node.Machine, policy nftables.ChainPolicy, last []expr.Any) (func() error, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
	if err != nil {
		return nil, err
	}
	before, err := forwardChain(conn)
	if err != nil {
		return nil, err
	}
	chain := func(policy nftables.ChainPolicy) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{
			Name: "FORWARD", Table: conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4}),
			Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
			Priority: nftables.ChainPriorityFilter, Policy: &policy,
		})
	}
	undo := func() error {
		now, err := forwardChain(conn)
		if err != nil || now == nil {
			return err // flushed meanwhile
		}
		if before == nil {
			conn.DelTable(now.Table)
			return conn.Flush()
		}
		rules, err := conn.GetRules(now.Table, now)
		if err != nil {
			return err
		}
		if last != nil {
			for _, r := range rules {
				if string(r.UserData) == forwardTag {
					err = errors.Join(err, conn.DelRule(r))
				}
			}
		}
		was := nftables.ChainPolicyAccept
		if before.Policy != nil {
			was = *before.Policy
		}
		chain(was)
		return errors.Join(err, conn.Flush())
	}
	if before != nil && before.Policy != nil && last != nil {
		policy = *before.Policy // a rule leaves the policy alone
	}
	made := chain(policy)
	if last != nil {
		conn.AddRule(&nftables.Rule{Table: made.Table, Chain: made, UserData: []byte(forwardTag), Exprs: last})
	}
	if err := conn.Flush(); err != nil {
		return undo, err
	}
	now, err := forwardChain(conn)
	if err != nil || now == nil || now.Policy == nil || *now.Policy != policy {
		return undo, fmt.Errorf("the chain is %+v (%w)", now, err)
	}
	return undo, nil
}

// forwardChain finds iptables-nft's FORWARD chain; nil if there is none.
func forwardChain(conn *nftables.Conn) (*nftables.Chain, error) {
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if errors.Is(err, unix.EINTR) {
		return forwardChain(conn)
	}
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	i := slices.IndexFunc(chains, func(c *nftables.Chain) bool {
		return c.Table.Name == "filter" && c.Name == "FORWARD"
	})
	if i < 0 {
		return nil, nil
	}
	return chains[i], nil
}

// setSysctl sets a kernel parameter that reads back, and returns what undoes it.
func setSysctl(m *node.Machine, key, value string) (func() error, error) {
	before, err := m.ReadSysctl(key)
	if err != nil {
		return func() error { return nil }, err
	}
	undo := func() error {
		if _, err := m.ReadSysctl(key); err != nil {
			return nil // the device that it belonged to is gone
		}
		return m.Sysctl(key, before)
	}
	if err := m.Sysctl(key, value); err != nil {
		return undo, err
	}
	if after, err := m.ReadSysctl(key); err != nil || after != value {
		return undo, fmt.Errorf("%s is %q after it was set to %q (%w)", key, after, value, err)
	}
	return undo, nil
}
