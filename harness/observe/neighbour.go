package observe

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// States of a neighbour entry by the names that `ip neigh` prints (linux/neighbour.h).
var stateNames = []struct {
	bit  int
	name string
}{
	{netlink.NUD_PERMANENT, "PERMANENT"},
	{netlink.NUD_NOARP, "NOARP"},
	{netlink.NUD_INCOMPLETE, "INCOMPLETE"},
	{netlink.NUD_REACHABLE, "REACHABLE"},
	{netlink.NUD_STALE, "STALE"},
	{netlink.NUD_DELAY, "DELAY"},
	{netlink.NUD_PROBE, "PROBE"},
	{netlink.NUD_FAILED, "FAILED"},
}

// StateName returns the name of a neighbour's state.
func StateName(state int) string {
	var names []string
	for _, s := range stateNames {
		if state&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	if len(names) == 0 {
		return "NONE"
	}
	return strings.Join(names, "|")
}

// Transition is a neighbour entry's change of state.
type Transition struct {
	At    time.Time
	State string
}

// NeighbourWatch collects the transitions of the entries of one device until it is closed.
type NeighbourWatch struct {
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	history map[netip.Addr][]Transition
}

// Gone is the state of an entry that was deleted.
const Gone = "GONE"

// WatchNeighbours follows the neighbour entries of a device in a network namespace. What is there at start
// is the first state of each.
func WatchNeighbours(handle netns.NsHandle, device string) (*NeighbourWatch, error) {
	nl, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch neighbours of %s: %w", device, err)
	}
	defer nl.Close()
	link, err := nl.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("watch neighbours of %s: %w", device, err)
	}
	w := &NeighbourWatch{stop: make(chan struct{}), history: map[netip.Addr][]Transition{}}
	updates := make(chan netlink.NeighUpdate, 1024)
	err = netlink.NeighSubscribeWithOptions(updates, w.stop, netlink.NeighSubscribeOptions{
		Namespace: &handle, ListExisting: true,
	})
	if err != nil {
		return nil, fmt.Errorf("watch neighbours of %s: %w", device, err)
	}
	w.done.Go(func() {
		for u := range updates {
			if u.LinkIndex == link.Attrs().Index {
				w.note(u)
			}
		}
	})
	return w, nil
}

func (w *NeighbourWatch) note(u netlink.NeighUpdate) {
	addr, ok := netip.AddrFromSlice(u.IP)
	if !ok || u.Family == unix.AF_BRIDGE {
		return
	}
	state := StateName(u.State)
	if u.Type == unix.RTM_DELNEIGH {
		state = Gone
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.history[addr.Unmap()]
	if len(h) == 0 || h[len(h)-1].State != state {
		w.history[addr.Unmap()] = append(h, Transition{At: time.Now(), State: state})
	}
}

// History returns the states that the entry of an address went through, one after another.
func (w *NeighbourWatch) History(addr netip.Addr) []Transition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Transition(nil), w.history[addr]...)
}

// States returns the names of the states that the entry of an address went through from t on.
func (w *NeighbourWatch) States(addr netip.Addr, t time.Time) []string {
	var names []string
	for _, s := range w.History(addr) {
		if !s.At.Before(t) {
			names = append(names, s.State)
		}
	}
	return names
}

// Close ends the watch.
func (w *NeighbourWatch) Close() {
	close(w.stop)
	w.done.Wait()
}
