package fault

import (
	"context"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
)

// AgeNeighbours makes the neighbour entries of the overlay's devices age within seconds instead of minutes,
// by the neighbour sysctls of the device (Documentation/networking/ip-sysctl.rst), which is what waiting
// would do. Permanent entries do not age, and that is what it tells apart.
type AgeNeighbours struct{ Nodes []string }

// ageing is what the sysctls are set to: an entry is taken for reachable for 0.3 s instead of 30, then
// unused ones go STALE and used ones are probed after 1 s by three questions 0.2 s apart.
var ageing = []struct{ key, value string }{
	{"base_reachable_time_ms", "300"},
	{"delay_first_probe_time", "1"},
	{"retrans_time_ms", "200"},
	{"gc_stale_time", "1"},
	{"ucast_solicit", "3"},
}

// Name implements Fault.
func (f AgeNeighbours) Name() string {
	return "neighbour entries aged on " + strings.Join(f.Nodes, ", ")
}

// Identity implements Fault.
func (f AgeNeighbours) Identity() Identity { return at("neighbours-age", f.Nodes...) }

// Inject implements Fault. The proof is that each sysctl reads back, and that no entry that can age is still
// REACHABLE for having been so before.
func (f AgeNeighbours) Inject(_ context.Context, w *Injection) error {
	for _, name := range f.Nodes {
		machine, err := w.Machine(name)
		if err != nil {
			return err
		}
		for _, a := range ageing {
			key := "net.ipv4.neigh." + node.SysctlName(w.Device()) + "." + a.key
			undo := func() error { return nil }
			boot := machine.Boot()
			w.OnHeal(func(context.Context) error {
				if !machine.On() || machine.Boot() != boot {
					return nil // what was changed went with the boot before
				}
				return undo()
			})
			if undo, err = setSysctl(machine, key, a.value); err != nil {
				return fmt.Errorf("%w: on %s: %w", ErrNotProven, name, err)
			}
		}
		// The kernel draws a new reachable time only now and then (net/core/neighbour.c, neigh_periodic_work),
		// so entries are told that they are old.
		if err := f.expire(w, name); err != nil {
			return err
		}
	}
	return nil
}

// expire makes every entry of the device that can age STALE, as if its reachable time had passed.
func (f AgeNeighbours) expire(w World, name string) error {
	machine, err := w.Machine(name)
	if err != nil {
		return err
	}
	link, err := machine.Netlink().LinkByName(w.Device())
	if err != nil {
		return fmt.Errorf("find %s on %s: %w", w.Device(), name, err)
	}
	entries, err := machine.Netlink().NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list neighbours on %s: %w", name, err)
	}
	for _, n := range entries {
		was := n.State
		if was != netlink.NUD_REACHABLE {
			continue
		}
		n.State = netlink.NUD_STALE
		if err := machine.Netlink().NeighSet(&n); err != nil {
			return fmt.Errorf("age neighbour %s (%s) on %s: %w", n.IP, observe.StateName(was), name, err)
		}
	}
	return nil
}
