package follow

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/observe"
)

const (
	// defaultWait is long enough for three questions for a neighbour, one second apart.
	defaultWait = 2300 * time.Millisecond
	// settle is how long sockets are read on once the outcome is known: what they have is in their queues.
	settle = 40 * time.Millisecond
	// maxOthers bounds how many nodes beside those of the ends are watched.
	maxOthers = 14
)

// Follow sends one marked echo and follows it. It takes Path.Wait at most, and little more than the round
// trip where an answer, a rule or an ICMP error comes. An error means that it could not be followed; that
// the echo was lost is no error.
//
// While it runs, every namespace on the way has a packet socket, and a table of nftables with one rule that
// matches nothing but the echo.
func Follow(ctx context.Context, w Path) (Trace, error) {
	f, err := newFollower(w)
	if err != nil {
		return Trace{}, err
	}
	defer f.stop()
	if err := f.start(ctx); err != nil {
		return Trace{}, fmt.Errorf("follow a packet from %s to %s: %w", w.From.Name, w.To.Name, err)
	}
	if err := f.echo(ctx); err != nil {
		return Trace{}, fmt.Errorf("follow a packet from %s to %s: %w", w.From.Name, w.To.Name, err)
	}
	states := f.readStates()
	f.stop()
	return f.trace(states), nil
}

// place is a namespace to watch.
type place struct {
	name string
	ns   netns.NsHandle
}

type follower struct {
	path Path
	mark [markLength]byte
	// length is that of the packet.
	length int
	places []place
	sender *sender

	mu       sync.Mutex
	captures []*capture
	rules    []*ruleTrace
	drops    *dropWatch
	seen     Observation
	notes    []string
	// decided is closed when the outcome is known.
	decided     chan struct{}
	decidedOnce sync.Once
}

func newFollower(w Path) (*follower, error) {
	if w.Wait <= 0 {
		w.Wait = defaultWait
	}
	f := &follower{path: w, mark: newMark(), decided: make(chan struct{})}
	f.length = w.Size
	if f.length == 0 {
		// A length of its own tells it from the other packets on the machine.
		f.length = smallest + int(f.mark[0])
	}
	f.seen = Observation{From: w.From, To: w.To, Nodes: w.Nodes, Leases: w.Leases, Size: w.Size}
	for _, e := range []End{w.From, w.To} {
		if !e.Addr.Is4() {
			return nil, fmt.Errorf("follow a packet: %s has no IPv4 address (%s)", e.Name, e.Addr)
		}
		if !slices.ContainsFunc(w.Nodes, func(n Node) bool { return n.Name == e.Node }) {
			return nil, fmt.Errorf(
				"follow a packet: the node %q of %s is not among those of the path",
				e.Node,
				e.Name,
			)
		}
		if e.IsPod() {
			f.places = append(f.places, place{e.Name, e.NS})
		}
	}
	others := 0
	for _, n := range w.Nodes {
		if n.Name != w.From.Node && n.Name != w.To.Node {
			if others++; others > maxOthers {
				continue
			}
		}
		f.places = append(f.places, place{n.Name, n.NS})
	}
	f.places = append(f.places, place{SwitchName, w.Switch})
	return f, nil
}

// start opens everything that listens, and then the sender.
func (f *follower) start(ctx context.Context) error {
	var opening errgroup.Group
	for _, p := range f.places {
		opening.Go(func() error {
			c, err := openCapture(p.name, p.ns, f.mark, f.frame)
			f.mu.Lock()
			defer f.mu.Unlock()
			if err != nil {
				// A machine that is switched off has no namespace; that is seen from the others.
				f.notes = append(f.notes, err.Error())
				return ctx.Err()
			}
			f.captures = append(f.captures, c)
			return ctx.Err()
		})
		opening.Go(func() error {
			t, err := openRuleTrace(p.name, p.ns, f.mark, f.directionOf, f.ruled)
			f.mu.Lock()
			defer f.mu.Unlock()
			if err != nil {
				f.notes = append(f.notes, err.Error())
				return nil
			}
			f.rules = append(f.rules, t)
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	drops, err := watchDrops(f.length, f.length+encapsulation)
	if err != nil {
		f.notes = append(f.notes, "the kernel's drop reasons are not available: "+err.Error())
	}
	f.drops = drops
	source := f.path.From.NS
	if !f.path.From.IsPod() {
		source = f.seen.node(f.path.From.Node).NS
	}
	f.sender, err = openSender(source, f.mark, f.path.Size > 0, f.answered)
	return err
}

// echo sends the echo and waits until its fate is known, or long enough.
func (f *follower) echo(ctx context.Context) error {
	refusal, err := f.sender.send(f.path.To.Addr, f.length)
	if err != nil {
		return err
	}
	if refusal != "" {
		f.mu.Lock()
		f.seen.SendError = refusal
		f.mu.Unlock()
		f.decide()
	}
	wait := time.NewTimer(f.path.Wait)
	defer wait.Stop()
	select {
	case <-f.decided:
	case <-wait.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (f *follower) decide() { f.decidedOnce.Do(func() { close(f.decided) }) }

func (f *follower) answered() {
	f.mu.Lock()
	f.seen.Answered = true
	f.mu.Unlock()
	f.decide()
}

// frame takes over what a packet socket saw.
func (f *follower) frame(raw frame) {
	got := decode(raw, f.mark)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case got.sighting != nil:
		f.seen.Sightings = append(f.seen.Sightings, *got.sighting)
	case got.arp != nil:
		f.seen.ARP = append(f.seen.ARP, *got.arp)
	case got.failure != nil:
		f.seen.ICMP = append(f.seen.ICMP, *got.failure)
		if got.failure.Type != redirect {
			f.decide()
		}
	}
}

// redirect is the ICMP type that says nothing about a loss.
const redirect = 5

// ruled takes over a decision of nftables.
func (f *follower) ruled(v RuleVerdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen.Rules = append(f.seen.Rules, v)
	if v.Drop {
		f.decide()
	}
}

// directionOf tells by the outer source of a packet in VXLAN whether the request or the reply is inside.
func (f *follower) directionOf(outer netip.Addr) string {
	if f.seen.node(f.path.To.Node).Addr == outer {
		return Reply
	}
	return Request
}

// readStates reads what all namespaces hold. Those that cannot be read are noted.
func (f *follower) readStates() map[string]observe.State {
	states := map[string]observe.State{}
	var reading sync.WaitGroup
	for _, p := range f.places {
		reading.Go(func() {
			s, err := observe.Read(p.ns)
			f.mu.Lock()
			defer f.mu.Unlock()
			states[p.name] = s
			if err != nil {
				f.notes = append(f.notes, fmt.Sprintf("%s: %v", p.name, err))
			}
		})
	}
	reading.Wait()
	return states
}

// stop reads on for a moment, and closes everything. The second time it does nothing.
func (f *follower) stop() {
	f.mu.Lock()
	captures, rules, drops, sender := f.captures, f.rules, f.drops, f.sender
	f.captures, f.rules, f.drops, f.sender = nil, nil, nil, nil
	f.mu.Unlock()
	var closing errgroup.Group
	// Closing a packet socket waits for the kernel's RCU, so all are closed at once.
	for _, c := range captures {
		closing.Go(c.close)
	}
	for _, t := range rules {
		closing.Go(t.close)
	}
	if sender != nil {
		closing.Go(sender.close)
	}
	err := closing.Wait()
	reasons := drops.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.notes = append(f.notes, "stop following: "+err.Error())
	}
	f.seen.Drops = append(f.seen.Drops, reasons...)
}

// trace puts together what was found out.
func (f *follower) trace(states map[string]observe.State) Trace {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.seen
	o.State = states
	slices.SortStableFunc(o.Sightings, func(a, b Sighting) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(o.ARP, func(a, b ARP) int { return a.At.Compare(b.At) })
	o.ICMP = firstOfEach(o.ICMP)
	return Trace{
		From: o.From.Name, To: o.To.Name, Verdict: Explain(o), Hops: o.Hops(), ICMP: o.ICMP,
		Notes: slices.Clone(f.notes), Observation: o,
	}
}

// firstOfEach keeps one sighting of each error: it is seen at every hop.
func firstOfEach(all []ICMPError) []ICMPError {
	slices.SortStableFunc(all, func(a, b ICMPError) int { return a.At.Compare(b.At) })
	var kept []ICMPError
	for _, e := range all {
		if !slices.ContainsFunc(kept, func(k ICMPError) bool {
			return k.Reporter == e.Reporter && k.Type == e.Type && k.Code == e.Code && k.Direction == e.Direction
		}) {
			kept = append(kept, e)
		}
	}
	return kept
}
