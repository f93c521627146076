package underlay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/preflight"
)

// Impairment is what a bad cable does to the frames of one port, in both directions. Shares are 0 to 1.
type Impairment struct {
	Loss, Duplicate, Corrupt float64
	// Delay delays every frame, by up to Jitter more or less. Reorder is the share of frames that are not
	// delayed and so overtake others (tc-netem(8)).
	Delay, Jitter time.Duration
	Reorder       float64
	// Rate limits the port to this many bits a second; 0 does not.
	Rate int64
	// TCPPort, if set, narrows Delay, Reorder, Duplicate and Corrupt to the segments from and to this port.
	TCPPort uint16
}

// Mechanisms of an impairment.
const (
	ByNetem    = "netem"
	ByNFTables = "nftables numgen in the bridge family"
	ByTBF      = "tbf"
	ByRelay    = "user-space queue between two packet sockets"
)

// Mechanism names what brings an impairment about on the running kernel: netem if the kernel has it, else
// the best substitute for each part.
func Mechanism(i Impairment) string {
	var all []string
	for _, p := range i.parts(preflight.Has("netem", ns.Scratch)) {
		all = append(all, p.how)
	}
	return strings.Join(slices.Compact(all), " and ")
}

// part is the part of an impairment that one mechanism brings about.
type part struct {
	how  string
	what Impairment
}

func (i Impairment) parts(netem bool) []part {
	var all []part
	add := func(how string, what Impairment) {
		if what != (Impairment{}) {
			all = append(all, part{how, what})
		}
	}
	queue := Impairment{
		Duplicate: i.Duplicate, Corrupt: i.Corrupt, Delay: i.Delay, Jitter: i.Jitter,
		Reorder: i.Reorder,
	}
	byNetem := Impairment{Loss: i.Loss, Rate: i.Rate}
	if netem && i.TCPPort == 0 {
		all = append(all, part{ByNetem, i})
		return all
	}
	if netem {
		add(ByNetem, byNetem)
	} else {
		add(ByNFTables, Impairment{Loss: i.Loss})
		add(ByTBF, Impairment{Rate: i.Rate})
	}
	if queue != (Impairment{}) {
		queue.TCPPort = i.TCPPort
		add(ByRelay, queue)
	}
	return all
}

// condition is what is wrong with a port, by holder. It stays when the port is unplugged.
type condition struct {
	down    map[string]bool
	impairs map[string]Impairment
	relay   *relay
	shaped  bool
}

// conditionOf finds a port's condition. The caller holds s.conditioning.
func (s *Switch) conditionOf(port string) *condition {
	c := s.conditions[port]
	if c == nil {
		c = &condition{down: map[string]bool{}, impairs: map[string]Impairment{}}
		s.conditions[port] = c
	}
	return c
}

// Impair impairs a port until Repair is called with the same holder. Unplugging and plugging the port does
// not end it. Impairments of several holders add up; the lowest rate counts.
func (s *Switch) Impair(port, holder string, i Impairment) error {
	if i.Loss > 1 || i.Duplicate > 1 || i.Corrupt > 1 || i.Reorder > 1 {
		return fmt.Errorf("impair %s: shares go from 0 to 1: %+v", port, i)
	}
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	s.conditionOf(port).impairs[holder] = i
	if err := s.apply(port); err != nil {
		return fmt.Errorf("impair %s: %w", port, err)
	}
	return nil
}

// Repair ends what a holder has done to a port.
func (s *Switch) Repair(port, holder string) error {
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	delete(s.conditionOf(port).impairs, holder)
	if err := s.apply(port); err != nil {
		return fmt.Errorf("repair %s: %w", port, err)
	}
	return nil
}

// Effects count what a port's impairments have done to frames so far.
type Effects struct{ Lost, Delayed, Reordered, Duplicated, Corrupted, Limited uint64 }

// Effects returns what a port's impairments have done. netem does not tell its effects apart: every frame
// that it handled counts for each.
func (s *Switch) Effects(port string) (Effects, error) {
	s.conditioning.Lock()
	defer s.conditioning.Unlock()
	var e Effects
	c := s.conditionOf(port)
	if c.relay != nil {
		e = c.relay.effects()
	}
	if counts, err := s.DroppedBy(lossHolder(port)); err == nil {
		for _, n := range counts {
			e.Lost += n
		}
	}
	if !c.shaped {
		return e, nil
	}
	err := s.ends(port, func(nl *netlink.Handle, link netlink.Link) error { return countShaped(nl, link, &e) })
	return e, err
}

func lossHolder(port string) string { return "loss " + port }

// apply gives a port the condition that is wanted. It does nothing for a port that is not plugged: Plug
// calls apply again.
func (s *Switch) apply(port string) error {
	if !s.inUse(port) {
		return nil
	}
	c := s.conditionOf(port)
	var drops []Drop
	var queue, shape []Impairment
	netem := preflight.Has("netem", ns.Scratch)
	for _, holder := range slices.Sorted(maps.Keys(c.impairs)) {
		for _, p := range c.impairs[holder].parts(netem) {
			switch p.how {
			case ByNFTables:
				drops = append(drops, Drop{From: port, Share: p.what.Loss}, Drop{To: port, Share: p.what.Loss})
			case ByRelay:
				queue = append(queue, p.what)
			default:
				shape = append(shape, p.what)
			}
		}
	}
	errs := []error{s.setPort(port, len(c.down) == 0)}
	if len(drops) > 0 {
		errs = append(errs, s.Drop(lossHolder(port), drops...))
	} else {
		errs = append(errs, s.Pass(lossHolder(port)))
	}
	errs = append(errs, s.shape(port, c, shape, netem), s.queue(port, c, queue))
	return errors.Join(errs...)
}
