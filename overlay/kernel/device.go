package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// devices sets up the VXLAN devices. It returns the links by name, the uplink included. It returns nil if it
// fails: then nothing else can be done.
func (p *pass) devices() map[string]netlink.Link {
	links := map[string]netlink.Link{}
	uplink, err := p.nl.LinkByName(p.want.Uplink)
	if err != nil {
		p.fail(fmt.Errorf("uplink %s: %w", p.want.Uplink, err))
		return nil
	}
	links[p.want.Uplink] = uplink
	for _, want := range p.want.Devices {
		link, err := p.device(want, uplink)
		if err != nil {
			p.fail(err)
			return nil
		}
		links[want.Name] = link
	}
	return links
}

func (p *pass) device(want plan.Device, uplink netlink.Link) (netlink.Link, error) {
	wanted := vxlanLink(want, uplink)
	link, err := p.nl.LinkByName(want.Name)
	if err == nil {
		if why := incompatible(link, wanted); why != "" {
			// The kernel cannot change these in place (drivers/net/vxlan, vxlan_changelink).
			if err := p.nl.LinkDel(link); err != nil {
				return nil, fmt.Errorf("remove device %s, which has %s: %w", want.Name, why, err)
			}
			p.do("device", "removed "+want.Name+", which had "+why, nil)
			err = netlink.LinkNotFoundError{}
			link = nil
		}
	}
	if link == nil {
		if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil, fmt.Errorf("find device %s: %w", want.Name, err)
		}
		if link, err = p.renamed(wanted); err != nil {
			return nil, err
		}
	}
	if link == nil {
		if err := p.nl.LinkAdd(wanted); err != nil {
			return nil, fmt.Errorf("add device %s: %w (is another device using VNI %d and port %d?)", want.Name, err,
				want.VNI, want.Port)
		}
		p.do("device", "added "+want.Name, nil)
		if link, err = p.nl.LinkByName(want.Name); err != nil {
			return nil, fmt.Errorf("find device %s: %w", want.Name, err)
		}
	}
	return link, p.adjust(want, link)
}

// renamed finds the device if an administrator or udev has renamed it, and gives it its own name again. It
// returns nil if there is none. The kernel would refuse a second device with the same settings.
func (p *pass) renamed(wanted *netlink.Vxlan) (netlink.Link, error) {
	all, err := dump(p.nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, link := range all {
		attrs := link.Attrs()
		if incompatible(link, wanted) != "" || attrs.HardwareAddr.String() != wanted.HardwareAddr.String() {
			continue
		}
		err := p.nl.LinkSetName(link, wanted.Name)
		if errors.Is(err, unix.EBUSY) { // before Linux 6.2 not while it is up (net/core/dev.c, dev_change_name)
			err = errors.Join(p.nl.LinkSetDown(link), p.nl.LinkSetName(link, wanted.Name))
		}
		if err != nil {
			return nil, fmt.Errorf("name device %s %s again: %w", attrs.Name, wanted.Name, err)
		}
		p.do("device", "renamed "+attrs.Name+" to "+wanted.Name, nil)
		found, err := p.nl.LinkByName(wanted.Name)
		if err != nil {
			return nil, fmt.Errorf("find device %s: %w", wanted.Name, err)
		}
		return found, nil
	}
	return nil, nil
}

// adjust changes in place what can be: MAC, MTU and whether it is up.
func (p *pass) adjust(want plan.Device, link netlink.Link) error {
	attrs := link.Attrs()
	if mac := net.HardwareAddr(want.MAC[:]); attrs.HardwareAddr.String() != mac.String() {
		p.do("device", fmt.Sprintf("MAC of %s from %s to %s", want.Name, attrs.HardwareAddr, mac),
			p.nl.LinkSetHardwareAddr(link, mac))
	}
	if attrs.MTU != want.MTU {
		p.do("device", fmt.Sprintf("MTU of %s from %d to %d", want.Name, attrs.MTU, want.MTU),
			p.nl.LinkSetMTU(link, want.MTU))
	}
	if attrs.Flags&net.FlagUp == 0 {
		if err := p.nl.LinkSetUp(link); err != nil {
			return fmt.Errorf("bring up %s: %w", want.Name, err)
		}
		p.do("device", "brought up "+want.Name, nil)
	}
	return nil
}

func vxlanLink(d plan.Device, uplink netlink.Link) *netlink.Vxlan {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = d.Name, d.MTU, d.MAC[:]
	return &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: int(d.VNI), VtepDevIndex: uplink.Attrs().Index, SrcAddr: d.Local.AsSlice(),
		Port: d.Port, Learning: d.Learning, GBP: d.GBP,
	}
}

// incompatible says which attribute, one that cannot be changed in place, differs; "" if none does.
func incompatible(link netlink.Link, want *netlink.Vxlan) string {
	have, ok := link.(*netlink.Vxlan)
	switch {
	case !ok:
		return "type " + link.Type()
	case have.VxlanId != want.VxlanId:
		return fmt.Sprintf("VNI %d", have.VxlanId)
	case have.VtepDevIndex != want.VtepDevIndex:
		return fmt.Sprintf("parent link %d", have.VtepDevIndex)
	case !have.SrcAddr.Equal(want.SrcAddr):
		return fmt.Sprintf("local address %s", have.SrcAddr)
	case have.Port != want.Port:
		return fmt.Sprintf("port %d", have.Port)
	case have.Learning != want.Learning:
		return fmt.Sprintf("learning %t", have.Learning)
	case have.GBP != want.GBP:
		return fmt.Sprintf("GBP %t", have.GBP)
	case len(have.Group) > 0 && !have.Group.IsUnspecified():
		return fmt.Sprintf("group %s", have.Group)
	case have.L2miss || have.L3miss:
		return "miss notifications"
	}
	return ""
}

// addresses gives each device its address. It removes other addresses inside the overlay's networks; foreign
// ones stay (flannel#1060).
func (p *pass) addresses(links map[string]netlink.Link) {
	for _, d := range p.want.Devices {
		link := links[d.Name]
		list, err := dump(func() ([]netlink.Addr, error) { return p.nl.AddrList(link, netlink.FAMILY_ALL) })
		if err != nil {
			p.fail(fmt.Errorf("list addresses of %s: %w", d.Name, err))
			continue
		}
		var have []plan.Addr
		for _, a := range list {
			if prefix := fromIPNet(a.IPNet); p.inside(prefix.Addr()) {
				have = append(have, plan.Addr{Link: d.Name, Prefix: prefix})
			}
		}
		var want []plan.Addr
		for _, a := range p.want.Addrs {
			if a.Link == d.Name {
				want = append(want, a)
			}
		}
		add, remove := diff(want, have, func(a plan.Addr) plan.Addr { return a })
		for _, a := range add {
			p.do("address", fmt.Sprintf("added %s to %s", a.Prefix, d.Name),
				p.nl.AddrReplace(link, addressEntry(a.Prefix)))
		}
		for _, a := range remove {
			p.do("address", fmt.Sprintf("removed %s from %s", a.Prefix, d.Name),
				p.nl.AddrDel(link, &netlink.Addr{IPNet: toIPNet(a.Prefix)}))
		}
	}
}

// addressEntry has an IPv6 address used at once: in a tunnel without multicast nobody could answer the
// search for duplicates (RFC 4862), and for a second no packet would leave by it.
func addressEntry(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: toIPNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// inside reports whether an address belongs to one of the overlay's networks, now or before.
func (p *pass) inside(a netip.Addr) bool { return p.insidePrefix(netip.PrefixFrom(a, a.BitLen())) }

func (p *pass) sysctls() {
	for _, s := range p.want.Sysctls {
		path := "/proc/sys/" + s.Path
		raw, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && strings.HasPrefix(s.Path, "net/ipv6/") {
			continue // a kernel without IPv6, or with it switched off, has nothing to set
		}
		if err == nil && strings.TrimSpace(string(raw)) == s.Value {
			continue
		}
		p.do("sysctl", s.Path+" set to "+s.Value, writeSysctl(s.Path, s.Value))
	}
}

func writeSysctl(path, value string) error {
	return os.WriteFile("/proc/sys/"+path, []byte(value), 0o644)
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func fromIPNet(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}

func toMAC(hw net.HardwareAddr) lease.MAC {
	var m lease.MAC
	copy(m[:], hw)
	return m
}
