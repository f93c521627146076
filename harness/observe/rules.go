package observe

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
)

// RuleHandles identifies every nftables rule of a network namespace. A handle is given once, so a rule that
// was deleted and written again has another one.
func RuleHandles(ns netns.NsHandle) ([]string, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	var handles []string
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return nil, fmt.Errorf("list rules of chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			handles = append(handles, fmt.Sprintf("%s %s %d", c.Table.Name, c.Name, r.Handle))
		}
	}
	return handles, nil
}
