package observe

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
)

// RuleHandles identifies every nftables rule of a network namespace. A handle is given once, so a rule that
// was deleted and written again has another one.
func RuleHandles(ns netns.NsHandle) ([]string, error) {
	return rules(ns, func(r *nftables.Rule) string { return fmt.Sprint(r.Handle) })
}

// RuleSet tells every nftables rule of a network namespace by what it does, in order, without handles and
// counts, so that two moments can be compared and a rule that is there twice is seen.
func RuleSet(ns netns.NsHandle) ([]string, error) {
	return rules(ns, func(r *nftables.Rule) string {
		var parts []string
		for _, e := range r.Exprs {
			text, err := json.Marshal(e)
			if _, counts := e.(*expr.Counter); counts || err != nil {
				text = nil
			}
			parts = append(parts, fmt.Sprintf("%s %s", strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr."), text))
		}
		return strings.Join(parts, "; ")
	})
}

func rules(ns netns.NsHandle, text func(*nftables.Rule) string) ([]string, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	var all []string
	for _, c := range chains {
		list, err := conn.GetRules(c.Table, c)
		if err != nil {
			return nil, fmt.Errorf("list rules of chain %s: %w", c.Name, err)
		}
		for _, r := range list {
			all = append(all, fmt.Sprintf("%s %s %s", c.Table.Name, c.Name, text(r)))
		}
	}
	return all, nil
}
