package observe

import (
	"fmt"

	"github.com/vishvananda/netns"
)

// RuleHandles identifies every nftables rule of a network namespace by its place and handle.
func RuleHandles(handle netns.NsHandle) ([]string, error) {
	return rules(handle, func(r Rule) string { return fmt.Sprint(r.Handle) })
}

// RuleSet tells every nftables rule of a network namespace by its place and what it does, in order, so that
// two moments can be compared and a rule that is there twice is seen.
func RuleSet(handle netns.NsHandle) ([]string, error) {
	return rules(handle, func(r Rule) string { return r.Exact })
}

func rules(handle netns.NsHandle, text func(Rule) string) (all []string, err error) {
	s, err := Read(handle, RuleTable)
	for _, r := range s.Rules {
		all = append(all, fmt.Sprintf("%s %s %s", r.Table, r.Chain, text(r)))
	}
	return all, err
}
