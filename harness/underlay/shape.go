package underlay

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// ends calls fn for both ends of a port's cable: the port itself and the machine's uplink.
func (s *Switch) ends(port string, fn func(*netlink.Handle, netlink.Link) error) error {
	s.mu.Lock()
	p, plugged := s.ports[port]
	s.mu.Unlock()
	if !plugged {
		return nil
	}
	link, err := s.nl.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", port, err)
	}
	machine, err := netlink.NewHandleAt(p.machine)
	if err != nil {
		return fmt.Errorf("open netlink on the machine at port %s: %w", port, err)
	}
	defer machine.Close()
	far, err := machine.LinkByName(p.uplink)
	if err != nil {
		return fmt.Errorf("find the uplink at port %s: %w", port, err)
	}
	return errors.Join(fn(s.nl, link), fn(machine, far))
}

// shape gives both ends of a cable the queueing discipline that the impairments need, or none.
func (s *Switch) shape(port string, c *condition, all []Impairment, netem bool) error {
	if len(all) == 0 && !c.shaped {
		return nil
	}
	c.shaped = len(all) > 0
	return s.ends(port, func(nl *netlink.Handle, link netlink.Link) error {
		attrs := netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}
		var qdisc netlink.Qdisc
		switch {
		case len(all) == 0:
			err := nl.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "tbf"})
			if err != nil {
				return fmt.Errorf("take the queueing discipline off %s: %w", link.Attrs().Name, err)
			}
			return nil
		case netem:
			qdisc = netemOf(attrs, sum(all))
		default:
			qdisc = tbfOf(attrs, sum(all).Rate)
		}
		if err := nl.QdiscReplace(qdisc); err != nil {
			return fmt.Errorf("put %s on %s: %w", qdisc.Type(), link.Attrs().Name, err)
		}
		return nil
	})
}

// sum adds impairments up: a frame can be lost only once, delays add, and the lowest rate counts.
func sum(all []Impairment) Impairment {
	either := func(a, b float64) float64 { return 1 - (1-a)*(1-b) }
	var total Impairment
	for _, i := range all {
		total.Loss, total.Duplicate = either(total.Loss, i.Loss), either(total.Duplicate, i.Duplicate)
		total.Corrupt, total.Reorder = either(total.Corrupt, i.Corrupt), either(total.Reorder, i.Reorder)
		total.Delay, total.Jitter = total.Delay+i.Delay, total.Jitter+i.Jitter
		if total.Rate == 0 || i.Rate > 0 && i.Rate < total.Rate {
			total.Rate = i.Rate
		}
	}
	return total
}

// tbfOf lets a burst of 20 full frames pass and queues frames for up to 0.4 s (tc-tbf(8)).
func tbfOf(attrs netlink.QdiscAttrs, bits int64) *netlink.Tbf {
	const burst, longest = 20 * 1514, 400 * time.Millisecond
	rate := uint64(max(1, bits/8))
	return &netlink.Tbf{
		QdiscAttrs: attrs, Rate: rate, Buffer: netlink.Xmittime(rate, burst),
		Limit: uint32(float64(rate)*longest.Seconds()) + burst,
	}
}

// netemOf describes an impairment to netem, which takes shares in per cent and times in microseconds.
func netemOf(attrs netlink.QdiscAttrs, i Impairment) *netlink.Netem {
	return netlink.NewNetem(attrs, netlink.NetemQdiscAttrs{
		Latency: uint32(i.Delay.Microseconds()), Jitter: uint32(i.Jitter.Microseconds()),
		Loss: float32(100 * i.Loss), Duplicate: float32(100 * i.Duplicate), CorruptProb: float32(100 * i.Corrupt),
		ReorderProb: float32(100 * i.Reorder), Rate64: uint64(i.Rate / 8), Limit: 10000,
	})
}

// countShaped adds what the queueing discipline of a link has done.
func countShaped(nl *netlink.Handle, link netlink.Link, e *Effects) error {
	all, err := nl.QdiscList(link)
	if err != nil {
		return fmt.Errorf("list the queueing disciplines of %s: %w", link.Attrs().Name, err)
	}
	for _, q := range all {
		a := q.Attrs()
		if a.Statistics == nil || a.Parent != netlink.HANDLE_ROOT {
			continue
		}
		var handled, limited uint64
		if a.Statistics.Basic != nil {
			handled = uint64(a.Statistics.Basic.Packets)
		}
		if a.Statistics.Queue != nil {
			limited = uint64(a.Statistics.Queue.Overlimits) + uint64(a.Statistics.Queue.Drops)
		}
		switch q.Type() {
		case "tbf":
			e.Limited += limited
		case "netem":
			e.Lost, e.Delayed, e.Reordered = e.Lost+limited, e.Delayed+handled, e.Reordered+handled
			e.Duplicated, e.Corrupted = e.Duplicated+handled, e.Corrupted+handled
			e.Limited += handled
		}
	}
	return nil
}
