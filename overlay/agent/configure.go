package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/nemesh/nemesh/overlay/kernel"
	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
	"github.com/nemesh/nemesh/overlay/plan"
)

// configure takes over the network configuration, once. It does not change while the agent runs.
func (a *Agent) configure(raw []byte) error {
	if a.raw != nil {
		if raw != nil && !sameConfig(raw, a.raw) {
			a.note("the network configuration has changed; it takes effect when this agent is restarted",
				"config", string(raw))
		}
		return nil
	}
	if raw == nil {
		return fmt.Errorf("there is no network configuration at %s/config in etcd: put one there, such as "+
			`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}`, a.opts.EtcdPrefix)
	}
	c, err := netconf.Parse(raw)
	if err != nil {
		return fmt.Errorf("network configuration: %w", err)
	}
	backend, err := plan.BackendOf(c.Backend.Type)
	if err != nil {
		return fmt.Errorf("network configuration: %w", err)
	}
	if c.EnableIPv4 && !a.opts.PublicIP.IsValid() {
		return fmt.Errorf("the network has IPv4 and uplink %s has no IPv4 address", a.uplink.Name)
	}
	if c.EnableIPv6 && !a.opts.PublicIPv6.IsValid() {
		if !c.EnableIPv4 || a.uplink.Pending6 {
			return fmt.Errorf(
				"the network has IPv6 and uplink %s has no IPv6 address that can be used yet",
				a.uplink.Name,
			)
		}
		// IPv4 goes on without it (flannel#2300): this node is a peer of IPv4 only.
		a.note(
			"the network has IPv6 and the uplink has no IPv6 address: this node has IPv4 only until it has one "+
				"and its agent is restarted",
			"uplink",
			a.uplink.Name,
		)
		c.EnableIPv6, c.IPv6 = false, netconf.Range{}
		a.mixed = true
	}
	a.mixed = a.mixed || (c.EnableIPv4 && c.EnableIPv6)
	a.config, a.raw, a.backend = c, raw, backend
	a.uplink = a.settle(a.uplink)
	a.takeAddresses()
	a.rememberNetworks()
	a.disown()
	a.chooseMACs()
	return nil
}

// sameConfig compares the content of two configurations. Their white space may differ: the saved one is
// indented.
func sameConfig(a, b []byte) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// chooseMACs chooses the MACs of the VXLAN devices. In this order: the saved ones, those of devices that
// exist already (of an agent that this one replaces), those that were published to peers, new ones.
func (a *Agent) chooseMACs() {
	known, _ := a.view.Of(a.opts.PublicIP, a.opts.PublicIPv6)
	choose := func(mac *lease.MAC, v6 bool, told *lease.VXLAN) {
		if mac.Unicast() {
			return
		}
		if there, ok := kernel.DeviceMAC(plan.DeviceName(a.config.Backend.VNI, v6)); ok && there.Unicast() {
			*mac = there
			return
		}
		if told != nil && told.VtepMAC.Unicast() {
			*mac = told.VtepMAC
			return
		}
		*mac = randomMAC()
	}
	choose(&a.state.VtepMAC, false, known.Attrs.BackendData)
	choose(&a.state.VtepMAC6, true, known.Attrs.BackendV6Data)
}

// randomMAC returns a unicast address, locally administered (IEEE 802).
func randomMAC() (mac lease.MAC) {
	_, _ = rand.Read(mac[:]) // never fails (crypto/rand)
	mac[0] = mac[0]&^1 | 2
	return mac
}
