package plan

import (
	"fmt"
	"net/netip"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
)

// DeviceName returns the name of the VXLAN device: flannel.1 for VNI 1, flannel-v6.1 for the IPv6 one.
func DeviceName(vni uint32, v6 bool) string {
	if v6 {
		return fmt.Sprintf("flannel-v6.%d", vni)
	}
	return fmt.Sprintf("flannel.%d", vni)
}

// vxlan plans one VXLAN device for each family. For each peer it plans a forwarding entry to its VTEP, a
// permanent neighbour with the VTEP's MAC, and an onlink route. Nothing is resolved on demand, so the agent
// does not have to run for it (flannel#636).
func vxlan(in Input) (State, []Rejected) {
	s := common(in)
	peers, rejected := trusted(in)
	for _, f := range families(in) {
		behind := map[lease.MAC]netip.Addr{} // whose VTEP has the MAC
		s.Devices = append(s.Devices, f.device)
		s.Addrs = append(s.Addrs, Addr{Link: f.device.Name, Prefix: host(f.own.Addr())})
		s.Sysctls = append(s.Sysctls, Sysctl{Path: "net/ipv6/conf/" + f.device.Name + "/accept_ra", Value: "0"})
		for _, p := range peers {
			subnet, public, data := f.of(p)
			if !subnet.IsValid() {
				continue // a peer of the other family only
			}
			reason := distrustVTEP(in, f, public, data)
			if reason == "" && behind[data.VtepMAC].IsValid() {
				reason = fmt.Sprintf("VTEP MAC %s is that of %s", data.VtepMAC, behind[data.VtepMAC])
			}
			if reason != "" {
				rejected = append(rejected, Rejected{Subnet: p.Subnet, Reason: reason})
				continue
			}
			behind[data.VtepMAC] = public
			if in.Config.Backend.DirectRouting && in.Direct != nil && in.Direct(public) {
				s.Routes = append(s.Routes, Route{Dst: subnet, Via: public, Link: in.Uplink.Name})
				continue
			}
			vtep := subnet.Addr()
			s.FDB = append(s.FDB, FDB{Link: f.device.Name, MAC: data.VtepMAC, Dst: public})
			s.Neighbours = append(s.Neighbours, Neighbour{Link: f.device.Name, IP: vtep, MAC: data.VtepMAC})
			s.Routes = append(s.Routes, Route{Dst: subnet, Via: vtep, Link: f.device.Name, Onlink: true})
		}
	}
	return s, rejected
}

// family is what differs between the two address families.
type family struct {
	device Device
	own    netip.Prefix
	mac    lease.MAC
	// of takes the family's part of a peer's lease.
	of func(lease.Lease) (subnet netip.Prefix, public netip.Addr, data *lease.VXLAN)
}

func families(in Input) []family {
	b := in.Config.Backend
	device := func(v6 bool, local netip.Addr, mac lease.MAC) Device {
		port := b.Port
		if port == 0 {
			port = kernelPort
		}
		return Device{
			Name: DeviceName(b.VNI, v6), VNI: b.VNI, Port: port, Parent: in.Uplink.Name, Local: local,
			MAC: mac, MTU: plainMTU(b, in.Uplink) - overheadOf(v6), GBP: b.GBP, Learning: b.Learning,
		}
	}
	var fs []family
	if in.Config.EnableIPv4 {
		fs = append(fs, family{
			device(false, in.Uplink.Addr, in.VtepMAC), in.Own.Subnet.V4, in.VtepMAC,
			func(l lease.Lease) (netip.Prefix, netip.Addr, *lease.VXLAN) {
				return l.Subnet.V4, l.Attrs.PublicIP, l.Attrs.BackendData
			},
		})
	}
	if in.Config.EnableIPv6 {
		fs = append(fs, family{
			device(true, in.Uplink.Addr6, in.VtepMAC6), in.Own.Subnet.V6, in.VtepMAC6,
			func(l lease.Lease) (netip.Prefix, netip.Addr, *lease.VXLAN) {
				return l.Subnet.V6, l.Attrs.PublicIPv6, l.Attrs.BackendV6Data
			},
		})
	}
	return fs
}

func distrustVTEP(in Input, f family, public netip.Addr, data *lease.VXLAN) string {
	switch {
	case data == nil:
		return "names no VTEP"
	case !data.VtepMAC.Unicast():
		return fmt.Sprintf("VTEP MAC %s is no device's", data.VtepMAC)
	case data.VtepMAC == f.mac:
		return fmt.Sprintf("VTEP MAC %s is this node's own", data.VtepMAC)
	case data.VNI != in.Config.Backend.VNI:
		return fmt.Sprintf("its VNI is %d, this network's is %d", data.VNI, in.Config.Backend.VNI)
	case !public.IsValid():
		return "has no public address of the family"
	}
	return ""
}

// Attrs returns what a node with these devices publishes for its peers.
func Attrs(b netconf.Backend, ip, ip6 netip.Addr, mac, mac6 lease.MAC) lease.Attrs {
	a := lease.Attrs{PublicIP: ip, PublicIPv6: ip6, BackendType: b.Type}
	if b.Type != "vxlan" {
		return a
	}
	if ip.IsValid() {
		a.BackendData = &lease.VXLAN{VNI: b.VNI, VtepMAC: mac}
	}
	if ip6.IsValid() {
		a.BackendV6Data = &lease.VXLAN{VNI: b.VNI, VtepMAC: mac6}
	}
	return a
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
