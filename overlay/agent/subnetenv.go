package agent

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
)

// subnetEnv writes the file from which the CNI plugin learns the node's subnet, in flannel's form.
func subnetEnv(c netconf.Config, own lease.Subnet, mtu int, masq bool) []byte {
	var b bytes.Buffer
	if c.EnableIPv4 {
		fmt.Fprintf(&b, "FLANNEL_NETWORK=%s\nFLANNEL_SUBNET=%s\n", c.IPv4.Network, gateway(own.V4))
	}
	if c.EnableIPv6 {
		fmt.Fprintf(&b, "FLANNEL_IPV6_NETWORK=%s\nFLANNEL_IPV6_SUBNET=%s\n", c.IPv6.Network, gateway(own.V6))
	}
	fmt.Fprintf(&b, "FLANNEL_MTU=%d\nFLANNEL_IPMASQ=%t\n", mtu, masq)
	return b.Bytes()
}

// gateway returns the first address of a subnet, with its length: what cni0 gets.
func gateway(subnet netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// updateFile writes a file unless it has this content already.
func updateFile(path string, content []byte, mode os.FileMode) (changed bool, err error) {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	return true, writeFile(path, content, mode)
}

// previousSubnet reads the subnet that an agent, ours or flannel's, left in the file; zero if there is none.
func previousSubnet(path string) lease.Subnet {
	raw, err := os.ReadFile(path)
	if err != nil {
		return lease.Subnet{}
	}
	var s lease.Subnet
	for line := range bytes.Lines(raw) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte("="))
		p, err := netip.ParsePrefix(string(value))
		if err != nil {
			continue
		}
		switch string(name) {
		case "FLANNEL_SUBNET":
			s.V4 = p.Masked()
		case "FLANNEL_IPV6_SUBNET":
			s.V6 = p.Masked()
		}
	}
	return s
}
