package cni

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// subnetEnv is the content of the subnet file, which the agent writes.
type subnetEnv struct {
	Networks []netip.Prefix
	// Gateways are the first addresses of the node's subnets, with the subnets' lengths: what the bridge gets.
	Gateways []netip.Prefix
	MTU      int
	IPMasq   bool
}

// errNotReady says that the node has no subnet yet.
var errNotReady = errors.New("this node has no subnet yet")

// readEnv reads the subnet file. One that is not there, or not complete, is errNotReady.
func readEnv(path string) (subnetEnv, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return subnetEnv{}, fmt.Errorf(
			"%w: there is no %s; the overlay's agent writes it when it has a lease, so see "+
				"whether it runs and what it logs (%w)",
			errNotReady,
			path,
			err,
		)
	}
	if err != nil {
		return subnetEnv{}, fmt.Errorf("read the subnet file: %w", err)
	}
	e, err := parseEnv(string(raw))
	if err != nil {
		return subnetEnv{}, fmt.Errorf("%w: %s: %w", errNotReady, path, err)
	}
	return e, nil
}

func parseEnv(text string) (subnetEnv, error) {
	values := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "="); ok {
			values[name] = value
		}
	}
	var e subnetEnv
	for _, f := range []struct{ network, subnet string }{
		{"FLANNEL_NETWORK", "FLANNEL_SUBNET"}, {"FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET"},
	} {
		network, subnet := values[f.network], values[f.subnet]
		if network == "" && subnet == "" {
			continue
		}
		n, err := netip.ParsePrefix(network)
		if err != nil {
			return subnetEnv{}, fmt.Errorf("%s=%q is not a network", f.network, network)
		}
		s, err := netip.ParsePrefix(subnet)
		if err != nil {
			return subnetEnv{}, fmt.Errorf("%s=%q is not an address with a length", f.subnet, subnet)
		}
		e.Networks, e.Gateways = append(e.Networks, n), append(e.Gateways, s)
	}
	if len(e.Networks) == 0 {
		return subnetEnv{}, errors.New("it is missing FLANNEL_NETWORK and FLANNEL_SUBNET")
	}
	var err error
	if e.MTU, err = strconv.Atoi(values["FLANNEL_MTU"]); err != nil || e.MTU <= 0 {
		return subnetEnv{}, fmt.Errorf("FLANNEL_MTU=%q is not a number of bytes", values["FLANNEL_MTU"])
	}
	if e.IPMasq, err = strconv.ParseBool(values["FLANNEL_IPMASQ"]); err != nil {
		return subnetEnv{}, fmt.Errorf("FLANNEL_IPMASQ=%q is neither true nor false", values["FLANNEL_IPMASQ"])
	}
	return e, nil
}

// same reports whether two readings give pods the same addresses.
func (e subnetEnv) same(o subnetEnv) bool {
	if len(e.Gateways) != len(o.Gateways) {
		return false
	}
	for i := range e.Gateways {
		if e.Gateways[i] != o.Gateways[i] {
			return false
		}
	}
	return true
}
