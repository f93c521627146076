package underlay

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

// relay carries the frames between a port and the bridge in user space, for kernels without netem. The port
// leaves the bridge and one end of a new veth pair takes its place. Two packet sockets pass each other what
// they receive. The state of offloads (checksum not filled in yet, one frame for several segments) travels
// with each frame (packet(7), PACKET_VNET_HDR), so frames are sent as they came.
type relay struct {
	inner    string // the end in the bridge
	sides    [2]*os.File
	impairs  atomic.Pointer[[]Impairment]
	counters counters
	queues   [2]*queue
	done     sync.WaitGroup
}

type counters struct{ delayed, reordered, duplicated, corrupted atomic.Uint64 }

func (r *relay) effects() Effects {
	c := &r.counters
	return Effects{
		Delayed: c.delayed.Load(), Reordered: c.reordered.Load(), Duplicated: c.duplicated.Load(),
		Corrupted: c.corrupted.Load(),
	}
}

// queue gives a port the relay that its impairments ask for, or takes it away.
func (s *Switch) queue(port string, c *condition, all []Impairment) error {
	if len(all) == 0 {
		return s.removeRelay(port, c)
	}
	if c.relay == nil {
		r, err := s.newRelay(port)
		if err != nil {
			return fmt.Errorf("put a queue between %s and the switch: %w", port, err)
		}
		c.relay = r
	}
	c.relay.impairs.Store(&all)
	return nil
}

func (s *Switch) newRelay(port string) (_ *relay, err error) {
	link, err := s.nl.LinkByName(port)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.relays++
	r := &relay{inner: fmt.Sprintf("inner%d", s.relays)}
	s.mu.Unlock()
	outer := fmt.Sprintf("outer%d", s.relays)
	r.impairs.Store(&[]Impairment{})
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: r.inner, MTU: link.Attrs().MTU}, PeerName: outer}
	if err := s.nl.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("add a veth pair: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.unlink(r.inner))
		}
	}()
	peer, err := s.nl.LinkByName(outer)
	if err != nil {
		return nil, err
	}
	if r.sides[0], err = s.tap(link); err != nil {
		return nil, err
	}
	if r.sides[1], err = s.tap(peer); err != nil {
		return nil, errors.Join(err, r.sides[0].Close())
	}
	// Linux answers ARP for all its addresses on all links. Outside the bridge both links would answer for the
	// switch's own address, so ARP is off on both.
	err = errors.Join(s.nl.LinkSetARPOff(link), s.nl.LinkSetARPOff(peer), up(s.nl, outer), up(s.nl, r.inner))
	if err == nil {
		err = errors.Join(s.waitUp(r.inner), s.waitUp(outer))
	}
	if err == nil {
		err = errors.Join(s.nl.LinkSetNoMaster(link), s.join(r.inner))
	}
	if err != nil {
		return nil, errors.Join(err, r.sides[0].Close(), r.sides[1].Close())
	}
	for i := range r.sides {
		r.queues[i] = newQueue()
		from, to, q := r.sides[i], r.sides[1-i], r.queues[i]
		r.done.Go(func() { r.read(from, q) })
		r.done.Go(func() { q.write(to) })
	}
	return r, nil
}

// waitUp waits until the kernel has noticed that a link is up. Before that, the kernel drops what is sent
// there and a bridge forwards nothing to it. A busy kernel looks once a second (net/core/link_watch.c).
func (s *Switch) waitUp(name string) error {
	const within = 5 * time.Second
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		link, err := s.nl.LinkByName(name)
		switch {
		case err != nil:
			return fmt.Errorf("find %s: %w", name, err)
		case link.Attrs().OperState == netlink.OperUp:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s is %s, and not up, after %s", name, link.Attrs().OperState, within)
		}
	}
}

// join makes a link a port of the bridge.
func (s *Switch) join(name string) error {
	link, err := s.nl.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := s.nl.LinkSetMaster(link, s.bridge); err != nil {
		return fmt.Errorf("make %s a port: %w", name, err)
	}
	return nil
}

// removeRelay ends a port's relay, and puts the port back into the bridge if it still exists. Frames in the
// queue are lost.
func (s *Switch) removeRelay(port string, c *condition) error {
	if c.relay == nil {
		return nil
	}
	r := c.relay
	c.relay = nil
	errs := []error{s.unlink(r.inner)}
	link, err := s.nl.LinkByName(port)
	if err == nil {
		// The port of a machine that is switched off goes too, some time later.
		if err = errors.Join(s.nl.LinkSetARPOn(link), s.nl.LinkSetMaster(link, s.bridge)); !gone(err) {
			errs = append(errs, err)
		}
	}
	for i := range r.sides {
		errs = append(errs, r.sides[i].Close())
		r.queues[i].close()
	}
	r.done.Wait()
	return errors.Join(errs...)
}

func gone(err error) bool { return errors.Is(err, unix.ENODEV) }

// unlink deletes a link that may be gone already.
func (s *Switch) unlink(name string) error {
	link, err := s.nl.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = s.nl.LinkDel(link)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// tap opens a packet socket that gets every frame that comes in on a link, and none that goes out.
func (s *Switch) tap(link netlink.Link) (file *os.File, err error) {
	err = ns.Do(s.handle, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		set := func(option, value int) error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, option, value) }
		index := link.Attrs().Index
		err = errors.Join(set(unix.PACKET_VNET_HDR, 1), set(unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
				&unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap16(unix.ETH_P_ALL), Ifindex: index}))
		const room = 8 << 20 // bytes; more than this user may have is granted to root only
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room)
		}
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), "packet socket at "+link.Attrs().Name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open a packet socket at %s: %w", link.Attrs().Name, err)
	}
	return file, nil
}

// swap16 puts a number into network byte order, as sockaddr_ll has its protocol (packet(7)).
func swap16(n uint16) uint16 { return n<<8 | n>>8 }

// read puts the frames that come in on one side into the queue for the other, until the side is closed.
func (r *relay) read(from *os.File, q *queue) {
	buffer := make([]byte, vnetHeader+64<<10+64)
	for {
		n, err := from.Read(buffer)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil || n <= vnetHeader:
			continue // the link went down, or is about to be deleted
		}
		r.pass(append([]byte(nil), buffer[:n]...), q)
	}
}
