package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/nemesh/nemesh/overlay/plan"
)

// Rules of the older iptables (iptables-legacy, ip_tables in the kernel) are not in nftables. They cannot be
// written by netlink, and the kernel reports no changes. Where such a filter table exists, the program
// iptables-legacy is run at each resync, to make a FORWARD chain that drops pass the network's packets.

// legacyComment marks the overlay's own rules there.
const legacyComment = "overlay forward"

// legacyTimeout bounds one run of the program, which waits for a lock that others may hold (xtables.lock).
const legacyTimeout = 5 * time.Second

// legacy lets the network's packets through the filter table of iptables-legacy, if there is one.
func (p *pass) legacy(ctx context.Context, want plan.Rules) {
	if !want.Forward {
		return
	}
	names, program := "/proc/thread-self/net/ip_tables_names", "iptables-legacy"
	if want.Network.Addr().Is6() {
		names, program = "/proc/thread-self/net/ip6_tables_names", "ip6tables-legacy"
	}
	tables, err := os.ReadFile(names)
	if err != nil || !slices.Contains(strings.Fields(string(tables)), iptablesTable) {
		return // no such kernel, no such table
	}
	path, err := exec.LookPath(program)
	if err != nil {
		p.fail(fmt.Errorf("there is a filter table of %s, whose rules may drop what is forwarded, and no such "+
			"program to look at it: install it, or let %s through chain FORWARD by hand", program, want.Network))
		return
	}
	listing, err := runLegacy(ctx, path, "-S", iptablesChain)
	if err != nil {
		p.fail(err)
		return
	}
	commands, blocks := legacyRepair(listing, want.Network)
	for _, c := range commands {
		if _, err := runLegacy(ctx, path, c...); err != nil {
			p.fail(err)
			return
		}
	}
	if len(commands) > 0 {
		p.do(
			"rules",
			fmt.Sprintf("accept %s in chain FORWARD of %s, where %s would drop it", want.Network, program,
				blocks),
			nil,
		)
	}
}

// legacyRepair reads the listing of a chain (iptables -S) and tells which commands let a network through it,
// and what of it drops packets otherwise. No commands: nothing drops, or the network's rules are at the top.
func legacyRepair(listing string, network netip.Prefix) (commands [][]string, blocks string) {
	ours := [][]string{legacyRule("-s", network), legacyRule("-d", network)}
	var rules []string
	for line := range strings.Lines(listing) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `"`, "")
		rule, isRule := strings.CutPrefix(line, "-A "+iptablesChain+" ")
		switch {
		case line == "-P "+iptablesChain+" DROP":
			blocks = "policy drop"
		case isRule && (strings.HasPrefix(rule, "-j REJECT") || rule == "-j DROP") && blocks == "":
			blocks = "the rule " + rule
		}
		if isRule {
			rules = append(rules, rule)
		}
	}
	first := len(rules) >= 2 && rules[0] == strings.Join(ours[0], " ") && rules[1] == strings.Join(ours[1], " ")
	if blocks == "" || first {
		return nil, ""
	}
	for _, rule := range rules { // those that somebody has put others before
		for _, o := range ours {
			if rule == strings.Join(o, " ") {
				commands = append(commands, append([]string{"-D", iptablesChain}, o...))
			}
		}
	}
	for i, o := range ours {
		commands = append(commands, append([]string{"-I", iptablesChain, fmt.Sprint(i + 1)}, o...))
	}
	return commands, blocks
}

// legacyRule is one of the overlay's rules as the program lists it.
func legacyRule(direction string, network netip.Prefix) []string {
	return []string{
		direction,
		network.Masked().String(),
		"-m",
		"comment",
		"--comment",
		legacyComment,
		"-j",
		"ACCEPT",
	}
}

func runLegacy(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, legacyTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, append([]string{"-w"}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
	}
	return string(out), nil
}
