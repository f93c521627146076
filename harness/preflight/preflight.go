// Package preflight tells what the running kernel can do for a world, and what to type where something is
// missing. It tries each feature in a network namespace that is gone afterwards.
//
// Use it only inside the sandbox, because it makes links.
package preflight

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Scratch runs a function in a network namespace that is gone afterwards, and returns its error: ns.Scratch.
type Scratch func(fn func() error) error

// Feature is one ability of the kernel.
type Feature struct {
	// Name is the word a user would search for, such as "vxlan".
	Name string
	// Needed says what cannot run without it.
	Needed string
	// Required says that no world can be built without it. Without another feature, some scenarios are skipped.
	Required bool
	// Remedy is the command that usually adds it.
	Remedy string

	try func() error
}

// All lists every feature that a world or a fault uses, the required ones first.
func All() []Feature {
	return []Feature{
		{"veth", "uplinks and pods", true, "sudo modprobe veth", link(&netlink.Veth{PeerName: "probe-peer"})},
		{"bridge", "the switch and cni0", true, "sudo modprobe bridge", link(&netlink.Bridge{})},
		{
			"vxlan", "the overlay's VXLAN backend", true, "sudo modprobe vxlan",
			link(&netlink.Vxlan{VxlanId: 1, Port: 8472}),
		},
		{"nftables", "masquerading", true, "sudo modprobe nf_tables", table(nftables.TableFamilyIPv4)},
		{
			"nftables-bridge", "cutting machines off from each other", true,
			"sudo modprobe nf_tables, on a kernel with CONFIG_NF_TABLES_BRIDGE", table(nftables.TableFamilyBridge),
		},
		{
			"packet-socket",
			"watching ARP on the overlay's device",
			true,
			"a kernel with CONFIG_PACKET",
			packetSocket,
		},
		{"tbf", "rate limits", false, "sudo modprobe sch_tbf", qdisc(func(a netlink.QdiscAttrs) netlink.Qdisc {
			return &netlink.Tbf{QdiscAttrs: a, Rate: 1 << 20, Limit: 1 << 16, Buffer: 1 << 16}
		})},
		{
			"netem", "packet loss, delay and the like in the kernel; a user-space queue stands in for it", false,
			"sudo modprobe sch_netem", qdisc(func(a netlink.QdiscAttrs) netlink.Qdisc {
				return netlink.NewNetem(a, netlink.NetemQdiscAttrs{Latency: 1000})
			}),
		},
	}
}

// Missing is the error for required features that the kernel lacks. Causes has the kernel's error of each.
type Missing struct {
	Features []Feature
	Causes   []error
}

// Error names each missing feature, what needs it and the command that usually adds it.
func (m *Missing) Error() string {
	text := "this kernel cannot carry the world:"
	for i, f := range m.Features {
		text += fmt.Sprintf("\n  no %s, which %s need (%v): %s", f.Name, f.Needed, m.Causes[i], f.Remedy)
	}
	return text
}

// Check tries the required features. It returns a *Missing when the kernel lacks any.
func Check(scratch Scratch) error {
	var missing Missing
	for _, f := range All() {
		if !f.Required {
			continue
		}
		if err := f.Try(scratch); err != nil {
			missing.Features = append(missing.Features, f)
			missing.Causes = append(missing.Causes, err)
		}
	}
	if len(missing.Features) > 0 {
		return &missing
	}
	return nil
}

// Try uses the feature once. It returns the kernel's error when the feature is missing.
func (f Feature) Try(scratch Scratch) error { return scratch(f.try) }

func link(l netlink.Link) func() error {
	return func() error {
		l.Attrs().Name = "probe"
		return netlink.LinkAdd(l)
	}
}

// qdisc puts a queueing discipline on a veth.
func qdisc(of func(netlink.QdiscAttrs) netlink.Qdisc) func() error {
	return func() error {
		if err := link(&netlink.Veth{PeerName: "probe-peer"})(); err != nil {
			return err
		}
		l, err := netlink.LinkByName("probe")
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(of(netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}))
	}
}

// Has tries one feature by name. It is false for a name that is not in All.
func Has(name string, scratch Scratch) bool {
	for _, f := range All() {
		if f.Name == name {
			return f.Try(scratch) == nil
		}
	}
	return false
}

func table(family nftables.TableFamily) func() error {
	return func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.AddTable(&nftables.Table{Name: "probe", Family: family})
		return conn.Flush()
	}
}

func packetSocket() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
