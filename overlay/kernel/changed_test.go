package kernel

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/overlay/plan"
)

// An entry may lead where it should and yet not as it should: through another port, with another MTU.
func TestEntriesThatWereChangedInPartAreRepaired(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(h host, s plan.State) error
		kind   string
	}{
		"a route's MTU": {func(h host, s plan.State) error {
			r := routeEntry(s.Routes[0], map[string]netlink.Link{"flannel.1": h.link("flannel.1")})
			r.MTU = 300
			return h.nl.RouteReplace(r)
		}, "route"},
		"a route's source": {func(h host, s plan.State) error {
			r := routeEntry(s.Routes[0], map[string]netlink.Link{"flannel.1": h.link("flannel.1")})
			r.Src = cidr("192.168.0.1/24").IP
			return h.nl.RouteReplace(r)
		}, "route"},
		"an FDB entry's port": {func(h host, s plan.State) error { return h.setPort(s.FDB[0], 4789) }, "fdb"},
		"an FDB entry's VNI": {func(h host, s plan.State) error {
			f := fdbEntry(h.link("flannel.1").Attrs().Index, s.FDB[0])
			f.VNI = 9
			return h.nl.NeighSet(f)
		}, "fdb"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			s := state(2)
			r := h.run(s)
			before := r.Repairs()[c.kind]
			must(t, c.tamper(h, s))
			h.eventually(name+" is repaired", func() bool { return r.Repairs()[c.kind] == before+1 })
			if changes := h.apply(s); len(changes) != 0 {
				t.Errorf("a pass with nothing to do changed %v", changes)
			}
		})
	}
}

// setPort has a forwarding entry lead to another port, which netlink's library cannot say.
func (h host) setPort(f plan.FDB, port uint16) error {
	index := uint32(h.link("flannel.1").Attrs().Index)
	return ns.Do(h.handle, func() error {
		request := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_ACK|unix.NLM_F_REPLACE|unix.NLM_F_CREATE)
		request.AddData(&netlink.Ndmsg{
			Family: unix.AF_BRIDGE, Index: index, State: netlink.NUD_PERMANENT,
			Flags: netlink.NTF_SELF,
		})
		request.AddData(nl.NewRtAttr(netlink.NDA_DST, f.Dst.AsSlice()))
		request.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, f.MAC[:]))
		request.AddData(nl.NewRtAttr(netlink.NDA_PORT, []byte{byte(port >> 8), byte(port)}))
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// A bridge that the device was made a port of notes its MAC too, which is no entry of the overlay's.
func TestWhatABridgeNotesOfTheDeviceIsNotTouched(t *testing.T) {
	h := newHost(t)
	s := state(1)
	h.apply(s)
	must(t, h.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	must(t, h.nl.LinkSetMaster(h.link("flannel.1"), h.link("br0")))
	if changes := h.apply(s); len(changes) != 0 {
		t.Errorf("a pass with nothing to do changed %v", changes)
	}
}

// The device has its name back, and is the same: what the kernel and captures know by its index goes on.
func TestDeviceThatWasRenamedHasItsNameAgain(t *testing.T) {
	h := newHost(t)
	s := state(2)
	h.run(s)
	before := h.link("flannel.1").Attrs().Index
	must(t, h.nl.LinkSetDown(h.link("flannel.1"))) // else older kernels refuse it
	must(t, h.nl.LinkSetName(h.link("flannel.1"), "overlay0"))
	h.eventually("the device has its name and is up", func() bool {
		link, err := h.nl.LinkByName("flannel.1")
		return err == nil && link.Attrs().Index == before && link.Attrs().Flags&net.FlagUp != 0
	})
	h.eventually("nothing is left to do", func() bool { return len(h.apply(s)) == 0 })
}
