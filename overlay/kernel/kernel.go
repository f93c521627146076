// Package kernel makes a node's kernel hold what a plan says, and keeps it so. One reconciler compares
// kernel and plan and repairs the differences, on netlink events and on a timer. The same comparison serves
// the first start, repair after tampering, restart without a gap, and removal of entries that no lease
// explains.
//
// It changes and removes only what is the overlay's own: its VXLAN devices and what is on them (addresses
// inside the overlay's networks, permanent neighbours and forwarding entries, routes), routes through a
// gateway on the uplink to destinations inside the overlay's networks, and its own nftables tables.
//
// It works in the network namespace of the calling process and needs CAP_NET_ADMIN.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/netlinksafe"
	"github.com/nemesh/nemesh/overlay/plan"
)

// Options tune a reconciler.
type Options struct {
	Log *slog.Logger
	// Resync is the time between two comparisons when no event asks for one. Default 30 s.
	Resync time.Duration
	// Coalesce is how long events are gathered before a comparison. Default 10 ms.
	Coalesce time.Duration
	// Changed, if set, is called by Run when links, addresses or routes have changed on which the choice of the
	// uplink may rest.
	Changed func()
	// Deaf compares only when the plan is replaced. Only a defect sets it.
	Deaf bool
}

// Change is one thing that was not as planned and has been repaired.
type Change struct {
	// Kind is device, address, route, neighbour, fdb, rules or sysctl.
	Kind string
	// What says what was done to which object.
	What string
}

// String returns the change as one line of a log.
func (c Change) String() string { return c.Kind + ": " + c.What }

// Reconciler keeps the kernel as its plan says. Its methods may be called from several goroutines.
type Reconciler struct {
	opts     Options
	wake     chan struct{}
	expected atomic.Pointer[expectation]

	newsMu  sync.Mutex
	news    concern // not acted on yet
	failing string  // why the last pass did not succeed

	mu       sync.Mutex // one pass at a time
	nl       *netlink.Handle
	want     plan.State
	set      bool
	links    map[string]netlink.Link // of the plan, as the last pass over them found them
	legacyAt time.Time               // when iptables-legacy was looked at last
	repairs  map[string]int
}

// New makes a reconciler for the network namespace of the calling process.
func New(opts Options) (*Reconciler, error) {
	if opts.Resync <= 0 {
		opts.Resync = 30 * time.Second
	}
	if opts.Coalesce <= 0 {
		opts.Coalesce = 10 * time.Millisecond
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	r := &Reconciler{opts: opts, nl: nl, wake: make(chan struct{}, 1), repairs: map[string]int{}}
	r.expected.Store(expect(plan.State{}, nil))
	return r, nil
}

// Set replaces the plan. Run and Apply carry it out.
func (r *Reconciler) Set(s plan.State) {
	r.mu.Lock()
	differ := allParts
	if r.set {
		differ = changes(r.want, s)
	}
	r.want, r.set = s, true
	r.expected.Store(expect(s, r.links))
	r.mu.Unlock()
	r.newsMu.Lock()
	r.news.parts |= differ
	r.newsMu.Unlock()
	if differ != 0 {
		r.poke()
	}
}

func (r *Reconciler) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// heard notes what events concern. While something is not as planned, every event leads to a comparison,
// because it may have removed what was in the way.
func (r *Reconciler) heard(c concern) {
	if r.opts.Deaf {
		return
	}
	r.newsMu.Lock()
	if r.failing != "" {
		c.parts = allParts
	}
	r.news = r.news.and(c)
	r.newsMu.Unlock()
	if c != (concern{}) {
		r.poke()
	}
}

// take returns what has to be compared, and forgets it.
func (r *Reconciler) take() concern {
	r.newsMu.Lock()
	defer r.newsMu.Unlock()
	c := r.news
	r.news = concern{}
	return c
}

// Repairs returns how many things of each kind have been changed so far.
func (r *Reconciler) Repairs() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]int, len(r.repairs))
	for kind, n := range r.repairs {
		counts[kind] = n
	}
	return counts
}

// Run repairs until ctx ends: when the plan is replaced, when the kernel reports a change that concerns the
// plan, and at each interval Resync. At the end it leaves the kernel as it is.
func (r *Reconciler) Run(ctx context.Context) error {
	if err := r.subscribe(ctx); err != nil {
		return err
	}
	resync := time.NewTicker(r.opts.Resync)
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-resync.C:
			r.heard(concern{parts: allParts})
		}
		// A burst (a link that goes takes its routes along) is one comparison, and what a pass changes comes
		// back as events, so passes keep a distance.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.opts.Coalesce):
		}
		r.Settle(ctx)
	}
}

// Settle does at once what Run would do next. It returns when the plan is carried out, as far as possible.
func (r *Reconciler) Settle(ctx context.Context) {
	r.mu.Lock()
	due := r.take()
	var changes []Change
	var err error
	if due.parts != 0 {
		changes, err = r.compare(ctx, due.parts)
	}
	r.mu.Unlock()
	if due.uplink && r.opts.Changed != nil {
		r.opts.Changed()
	}
	if due.parts != 0 {
		r.report(changes, err)
	}
}

// report logs what a pass has repaired. It logs what could not be repaired once.
func (r *Reconciler) report(changes []Change, err error) {
	for _, c := range changes {
		r.opts.Log.Info("repaired "+c.Kind, "what", c.What)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.newsMu.Lock()
	before := r.failing
	r.failing = text
	r.newsMu.Unlock()
	switch {
	case text != "" && text != before:
		r.opts.Log.Error("the data plane is not as planned; trying again", "err", err)
	case text == "" && before != "":
		r.opts.Log.Info("the data plane is as planned again")
	}
}

// Apply compares everything once and repairs the differences. It goes on after an error, because a part of
// the data plane is better than nothing, and returns all errors.
func (r *Reconciler) Apply(ctx context.Context) ([]Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.compare(ctx, allParts)
}

// compare is Apply for some parts, with the reconciler locked.
func (r *Reconciler) compare(ctx context.Context, parts part) ([]Change, error) {
	if !r.set {
		return nil, nil
	}
	p := pass{nl: r.nl, want: r.want, legacyDue: time.Since(r.legacyAt) >= r.opts.Resync}
	if p.legacyDue {
		r.legacyAt = time.Now()
	}
	if r.links == nil || parts&partLinks != 0 {
		parts = allParts
		r.links = p.devices()
		r.expected.Store(expect(r.want, r.links))
	}
	if r.links != nil {
		p.run(ctx, parts, r.links)
	}
	for _, c := range p.changes {
		r.repairs[c.Kind]++
	}
	return p.changes, errors.Join(p.errs...)
}

// pass is one comparison.
type pass struct {
	nl   *netlink.Handle
	want plan.State
	// legacyDue says that iptables-legacy is looked at too.
	legacyDue bool

	changes []Change
	errs    []error
}

// run repairs in an order in which no packet is lost: entries that lead to a peer are added before the route
// that uses them, and removed after it.
func (p *pass) run(ctx context.Context, parts part, links map[string]netlink.Link) {
	if parts&partSysctls != 0 {
		p.sysctls()
	}
	if parts&partLinks != 0 {
		p.addresses(links)
	}
	if parts&partRules != 0 {
		p.rules()
	}
	drop := func() {}
	if parts&partPeers != 0 {
		drop = p.neighbours(links)
	}
	if parts&partRoutes != 0 {
		p.routes(links)
		p.blackholes()
	}
	drop()
	if parts&partLinks != 0 {
		p.formerDevices()
	}
	if p.legacyDue && ctx.Err() == nil {
		for _, want := range p.want.Rules {
			p.legacy(ctx, want)
		}
	}
}

func (p *pass) fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// do runs one repair and notes it.
func (p *pass) do(kind, what string, err error) {
	if err != nil {
		p.fail(fmt.Errorf("%s %s: %w", kind, what, err))
		return
	}
	p.changes = append(p.changes, Change{Kind: kind, What: what})
}

// patience is how long to repeat a list that the kernel interrupts. It allows dozens of reads. A pass of
// many lists, for which the agent may have to wait, still ends long before the agent's time to end.
const patience = 100 * time.Millisecond

// dump reads a complete list from the kernel.
func dump[T any](read func() ([]T, error)) ([]T, error) { return netlinksafe.Complete(patience, read) }

// diff returns what to set and what to remove, so that have becomes want. Values with the same key are the
// same object in the kernel: setting one replaces the other.
func diff[K, V comparable](want, have []V, key func(V) K) (set, remove []V) {
	wanted := make(map[K]V, len(want))
	for _, v := range want {
		wanted[key(v)] = v
	}
	there := make(map[K]V, len(have))
	for _, v := range have {
		there[key(v)] = v
		if _, ok := wanted[key(v)]; !ok {
			remove = append(remove, v)
		}
	}
	for _, v := range want {
		if old, ok := there[key(v)]; !ok || old != v {
			set = append(set, v)
		}
	}
	return set, remove
}
