// Package underlay builds the network between the machines: a switch, and an uplink from each machine to it.
//
// The switch is a bridge in its own network namespace. It also stands for the outside: it has the address of
// the gateway, to which the default route of each machine leads.
package underlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/wait"
)

const bridgeName = "switch"

// Switch joins the uplinks of a world's machines. Its methods may be called from several goroutines.
type Switch struct {
	handle  netns.NsHandle
	nl      *netlink.Handle
	bridge  netlink.Link
	gateway netip.Prefix

	mu     sync.Mutex
	ports  map[string]*plugged
	relays int // made so far, for names

	conditioning sync.Mutex // held while a port's condition is changed
	conditions   map[string]*condition
}

// plugged is a port in use: the machine at the other end of the cable and the name of the uplink there.
type plugged struct {
	addr    netip.Prefix
	machine netns.NsHandle
	uplink  string
}

// NewSwitch makes a switch. Its own address is gateway, the default gateway of every machine.
func NewSwitch(gateway netip.Prefix) (*Switch, error) {
	handle, err := ns.New()
	if err != nil {
		return nil, err
	}
	s := &Switch{
		handle:     handle,
		gateway:    gateway,
		ports:      map[string]*plugged{},
		conditions: map[string]*condition{},
	}
	if err := s.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("build the switch: %w", err), s.Close())
	}
	return s, nil
}

func (s *Switch) build() error {
	nl, err := netlink.NewHandleAt(s.handle)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	s.nl = nl
	if err := up(nl, "lo"); err != nil {
		return err
	}
	if err := nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}); err != nil {
		return fmt.Errorf("add the bridge: %w", err)
	}
	if s.bridge, err = nl.LinkByName(bridgeName); err != nil {
		return fmt.Errorf("find the bridge: %w", err)
	}
	if err := nl.AddrAdd(s.bridge, address(s.gateway)); err != nil {
		return fmt.Errorf("give the switch %s: %w", s.gateway, err)
	}
	return up(nl, bridgeName)
}

// NetNS returns the switch's network namespace. Tests put there what is outside the overlay.
func (s *Switch) NetNS() netns.NsHandle { return s.handle }

// Gateway returns the switch's own address.
func (s *Switch) Gateway() netip.Addr { return s.gateway.Addr() }

// Bits returns the prefix length of the underlay.
func (s *Switch) Bits() int { return s.gateway.Bits() }

// Plug connects a machine by a veth pair. One end is the port on the switch, the other the uplink in the
// machine's network namespace, with the given address and a default route to the gateway. A port or address
// that is in use is an error. A port that was down or impaired when it was unplugged is so again.
func (s *Switch) Plug(port string, machine netns.NsHandle, uplink string, addr netip.Prefix) error {
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	if err := s.reserve(port, &plugged{addr, machine, uplink}); err != nil {
		return err
	}
	err := s.connect(port, machine, uplink, addr)
	if _, bad := s.conditions[port]; err == nil && bad {
		err = s.apply(port)
	}
	if err != nil {
		s.forget(port)
		return fmt.Errorf("plug %s into the switch: %w", port, err)
	}
	return nil
}

func (s *Switch) reserve(port string, p *plugged) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.ports[port]; taken {
		return fmt.Errorf("port %s of the switch is in use: unplug it first", port)
	}
	for other, o := range s.ports {
		if o.addr.Addr() == p.addr.Addr() {
			return fmt.Errorf("%s has the address %s already: give %s another one", other, p.addr.Addr(), port)
		}
	}
	s.ports[port] = p
	return nil
}

func (s *Switch) inUse(port string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[port] != nil
}

func (s *Switch) forget(port string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ports, port)
}

func (s *Switch) connect(port string, machine netns.NsHandle, uplink string, addr netip.Prefix) error {
	err := s.nl.LinkAdd(&netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: port, MasterIndex: s.bridge.Attrs().Index},
		PeerName:      uplink,
		PeerNamespace: netlink.NsFd(machine),
	})
	if err != nil {
		return fmt.Errorf("add the veth pair: %w", err)
	}
	if err := up(s.nl, port); err != nil {
		return err
	}
	nl, err := netlink.NewHandleAt(machine)
	if err != nil {
		return fmt.Errorf("open netlink on the machine: %w", err)
	}
	defer nl.Close()
	link, err := nl.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("find the uplink: %w", err)
	}
	if err := nl.AddrAdd(link, address(addr)); err != nil {
		return fmt.Errorf("give the uplink %s: %w", addr, err)
	}
	if err := nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up the uplink: %w", err)
	}
	gateway := net.IP(s.gateway.Addr().AsSlice())
	if err := nl.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway}); err != nil {
		return fmt.Errorf("add the default route: %w", err)
	}
	return s.awaitForwarding(port)
}

// forwardsWithin bounds waiting for a port that forwards.
const forwardsWithin = 5 * time.Second

// awaitForwarding waits until the bridge forwards at a port. That is when the kernel's link watch has seen
// the carrier of the other end (net/core/link_watch.c, br_port_carrier_check), which waits for its turn
// when other links come and go: until then all that is sent there is lost.
func (s *Switch) awaitForwarding(port string) error {
	return wait.Within(context.Background(), forwardsWithin, time.Millisecond, func(context.Context) error {
		link, err := s.nl.LinkByName(port)
		if err != nil {
			return wait.GiveUp(fmt.Errorf("find port %s: %w", port, err))
		}
		if state := link.Attrs().OperState; state != netlink.OperUp {
			return fmt.Errorf("port %s does not forward: it is %s", port, state)
		}
		return nil
	})
}

// Unplug removes a port and the machine's uplink. A port that is not plugged is not an error, because a port
// is gone as soon as the machine's network namespace is.
func (s *Switch) Unplug(port string) error {
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	s.forget(port)
	err := s.unlink(port)
	if c := s.conditions[port]; c != nil {
		c.shaped = false // the queueing disciplines went with the links
		err = errors.Join(err, s.removeRelay(port, c))
	}
	if err != nil {
		return fmt.Errorf("unplug %s: %w", port, err)
	}
	return nil
}

// SetPort brings a port up or down, as when the cable is pulled at the switch: the machine's uplink loses
// its carrier and keeps its addresses and routes.
func (s *Switch) SetPort(port string, isUp bool) error {
	if isUp {
		return s.PlugCable(port, "")
	}
	return s.PullCable(port, "")
}

// PullCable brings a port down until PlugCable is called with the same holder. With several holders the port
// comes up after the last PlugCable. A port that is unplugged meanwhile is down when it is plugged again.
func (s *Switch) PullCable(port, holder string) error {
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	s.conditionOf(port).down[holder] = true
	if !s.inUse(port) {
		return nil
	}
	return s.setPort(port, false)
}

// PlugCable undoes PullCable of the same holder.
func (s *Switch) PlugCable(port, holder string) error {
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	c := s.conditionOf(port)
	delete(c.down, holder)
	if !s.inUse(port) {
		return nil
	}
	return s.setPort(port, len(c.down) == 0)
}

func (s *Switch) setPort(port string, isUp bool) error {
	link, err := s.nl.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", port, err)
	}
	set := s.nl.LinkSetDown
	if isUp {
		set = s.nl.LinkSetUp
	}
	if err := set(link); err != nil {
		return fmt.Errorf("set port %s up=%t: %w", port, isUp, err)
	}
	return nil
}

// Close frees the switch and with it every uplink.
func (s *Switch) Close() error {
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	var errs []error
	for port, c := range s.conditions {
		errs = append(errs, s.removeRelay(port, c))
	}
	if s.nl != nil {
		s.nl.Close()
	}
	return errors.Join(append(errs, s.handle.Close())...)
}

func up(nl *netlink.Handle, name string) error {
	link, err := nl.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

func address(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{
		IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
}
