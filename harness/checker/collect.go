package checker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
)

// reservations is where host-local keeps one file an address, in a folder for each network.
const reservations = "/var/lib/cni/networks"

// Collect reads what a machine's kernel and disk hold of an overlay with the given device and subnet file.
// The fields Pods and Agent are left to the caller.
func Collect(m *node.Machine, device, subnetFile string) (Node, error) {
	s, err := observe.Read(m.NetNS(), observe.AddressTable, observe.RouteTable, observe.NeighbourTable,
		observe.ForwardingTable, observe.RuleTable)
	n := nodeOf(m, device, s)
	if err := errors.Join(err, n.readReservations(m)); err != nil {
		return n, fmt.Errorf("read what %s holds: %w", m.Name(), err)
	}
	if text, err := os.ReadFile(m.Path(subnetFile)); err == nil {
		env, _ := flannelkeys.ParseEnv(text) // one that names no subnet is as good as none
		n.Gateway = env.Gateway
	}
	return n, nil
}

// Overlay reads the entries of a machine's kernel that are the overlay's, as lines (Node.Overlay).
func Overlay(m *node.Machine, device string, network netip.Prefix) ([]string, error) {
	s, err := observe.Read(m.NetNS(), observe.RouteTable, observe.NeighbourTable, observe.ForwardingTable)
	if err != nil {
		return nil, fmt.Errorf("read what %s holds: %w", m.Name(), err)
	}
	return nodeOf(m, device, s).Overlay(network), nil
}

// nodeOf picks out of a machine's state what is judged.
func nodeOf(m *node.Machine, device string, s observe.State) Node {
	n := Node{Name: m.Name(), Uplink: node.Uplink, Device: device, Rules: s.Rules}
	_, n.HasBridge = s.Link(node.Bridge)
	for _, l := range s.Links {
		switch {
		case l.Name == device:
			n.MAC = l.MAC
		case l.Type == "veth" && l.Name != n.Uplink:
			n.Veths = append(n.Veths, l)
		}
	}
	for _, a := range s.Addresses {
		switch {
		case !a.Prefix.Addr().Is4():
		case a.Device == node.Bridge:
			n.Bridge = append(n.Bridge, a.Prefix)
		case a.Device == n.Uplink:
			n.Addrs = append(n.Addrs, a.Prefix.Addr())
		}
	}
	for _, r := range s.Routes {
		if r.Table == unix.RT_TABLE_MAIN && r.Dst.Addr().Is4() && r.Dst.Bits() > 0 {
			n.Routes = append(n.Routes, r)
		}
	}
	for _, e := range s.Neighbours {
		if e.Device == device && e.Permanent() && e.IP.Is4() {
			n.Neighbours = append(n.Neighbours, e)
		}
	}
	for _, e := range s.FDB {
		if e.Device == device && e.Permanent() {
			n.FDB = append(n.FDB, e)
		}
	}
	return n
}

// CollectPod reads what is inside a pod's network namespace.
func CollectPod(name string, handle netns.NsHandle, ifName string) (Pod, error) {
	s, err := observe.Read(handle, observe.AddressTable)
	if err != nil {
		return Pod{}, fmt.Errorf("look into pod %s: %w", name, err)
	}
	link, ok := s.Link(ifName)
	if !ok {
		return Pod{}, fmt.Errorf("look into pod %s: it has no %s", name, ifName)
	}
	p := Pod{Name: name, Peer: link.Peer}
	for _, a := range s.AddressesOf(ifName) {
		if !a.Addr().IsLinkLocalUnicast() {
			p.Addrs = append(p.Addrs, a.Addr())
		}
	}
	return p, nil
}

func (n *Node) readReservations(m *node.Machine) error {
	files, err := filepath.Glob(m.Path(reservations) + "/*/*")
	if err != nil {
		return fmt.Errorf("list reservations: %w", err)
	}
	for _, file := range files {
		addr, err := netip.ParseAddr(filepath.Base(file))
		if err != nil {
			continue // the lock, and the last address that was reserved
		}
		raw, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a reservation: %w", err)
		}
		container, _, _ := strings.Cut(string(raw), "\r\n")
		n.Reservations = append(n.Reservations, Reservation{
			Network: filepath.Base(filepath.Dir(file)), Addr: addr,
			Container: strings.TrimSpace(container),
		})
	}
	return nil
}
