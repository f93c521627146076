// Package agent is the overlay's agent. It registers this node, watches the other nodes, and keeps the
// kernel and subnet.env as the plan says.
//
// One loop owns all state. A failure of the control plane removes nothing from the data plane: without etcd
// the node goes on with the leases that it knows, and starts from its saved state.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/overlay/defect"
	"github.com/nemesh/nemesh/overlay/kernel"
	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
	"github.com/nemesh/nemesh/overlay/plan"
)

// Agent is one node's agent.
type Agent struct {
	opts Options
	log  *slog.Logger

	client  *clientv3.Client
	store   *lease.Store
	watcher *lease.Watcher
	kernel  *kernel.Reconciler
	hooks   hooks
	status  *status
	given   Options       // as on the command line, before addresses were filled in
	changed chan struct{} // the kernel's links, addresses, routes or rules have
	reload  chan struct{}
	failed  chan error // ends the loop

	// All below belongs to the loop.
	uplink     plan.Uplink
	lost       string // the families whose address the uplink has lost
	config     netconf.Config
	raw        []byte // config as it stands in etcd
	backend    plan.Backend
	mixed      bool           // some nodes have both families and others may have one
	former     []netip.Prefix // networks that this node had a subnet of before
	state      saved
	stored     []byte     // the state as it was written last
	unsaved    bool       // the state may have changed since
	shown      lease.View // as published last, which is what is saved
	asShown    []byte     // raw as of then
	own        lease.Lease
	view       lease.View
	kept       []lease.Owner // peers that a rewound etcd has forgotten
	online     bool          // the view comes from etcd, not from the saved state
	had        bool          // a lease was held in this run
	renewed    time.Time
	tried      time.Time // the last renewal, whether it failed or not
	renewFails bool      // the last renewal of the lease that is held has failed
	// acquired is when the lease was taken last.
	acquired time.Time
	noted    map[string]bool
	written  bool // subnet.env stands
}

// New prepares an agent. It changes nothing on the node.
func New(opts Options, log *slog.Logger) (*Agent, error) {
	weaken(&opts)
	client, err := dialEtcd(opts)
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	reconciler, err := kernel.New(kernel.Options{
		Log: log, Resync: opts.Resync, Changed: func() { poke(changed) }, Deaf: opts.Defects.Has(defect.Deaf),
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	store := lease.NewStore(client, opts.EtcdPrefix, log)
	a := &Agent{
		opts: opts, log: log, client: client, store: store, kernel: reconciler,
		watcher: lease.NewWatcher(store, opts.EtcdCheck, opts.EtcdTimeout),
		noted:   map[string]bool{}, changed: changed, given: opts, reload: make(chan struct{}, 1),
		failed: make(chan error, 3),
	}
	a.hooks = newHooks(a)
	a.status = &status{opts: opts, seen: a.watcher.Seen, repairs: reconciler.Repairs, alive: time.Now()}
	return a, nil
}

// Run runs the agent until ctx ends, which is not an error. The data plane, subnet.env and the lease stay.
func (a *Agent) Run(ctx context.Context) error {
	defer a.client.Close()
	var err error
	if a.state, err = load(a.opts.StateDir); a.state.Instance == "" {
		return err
	} else if err != nil {
		a.log.Error("starting as a new node", "err", err)
	}
	if err := a.hooks.begin(a); errors.Is(err, errQuit) {
		return nil
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := a.status.serve(ctx); err != nil {
		return err
	}
	if err := a.waitUplink(ctx); err != nil {
		return ignoreCancel(ctx, err)
	}
	go func() { a.failed <- a.kernel.Run(ctx) }()
	views := make(chan lease.View, 1)
	go a.watcher.Run(ctx, func(v lease.View) { replace(views, v) })
	for _, run := range a.hooks.run {
		go run(ctx)
	}
	return ignoreCancel(ctx, a.loop(ctx, views))
}

func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// replace puts the newest view into the channel. It replaces one that was not taken yet.
func replace(views chan lease.View, v lease.View) {
	select {
	case skipped := <-views:
		v.Rewound, v.Listed = v.Rewound || skipped.Rewound, v.Listed || skipped.Listed
	default:
	}
	views <- v
}

// publishPause is the least time between two publications. It doubles while changes keep coming, up to
// publishPauseMost: when fifty nodes start at once, they need the processor for their start. lookPause is
// the least time between two looks at the uplink. Each look lists all addresses, and another program may
// change them all the time. savePause is the least time between two writes of the saved state. A change of
// this node's own lease is saved at once.
const (
	publishPause     = 50 * time.Millisecond
	publishPauseMost = 200 * time.Millisecond
	lookPause        = 50 * time.Millisecond
	savePause        = time.Second
)

// retryPause is the time between two tries of what failed, such as registering while no subnet is free.
const retryPause = time.Second

func (a *Agent) loop(ctx context.Context, views <-chan lease.View) error {
	grace := time.After(a.opts.Grace)
	renew := time.NewTimer(time.Hour)
	retry := time.NewTimer(time.Hour)
	recheck := time.NewTimer(time.Hour)
	soon, published, pause := time.NewTimer(time.Hour), time.Time{}, publishPause
	look, looked := time.NewTimer(time.Hour), time.Time{}
	saving := time.NewTicker(savePause)
	defer saving.Stop()
	beat := time.NewTicker(stuckAfter / 6)
	defer beat.Stop()
	registered := func(ok bool) { // what failed is tried again soon, whatever happens meanwhile
		if !ok {
			retry.Reset(min(retryPause, a.opts.LeaseRenew))
		} else if a.own.ModRevision != 0 {
			retry.Stop()
		}
	}
	for {
		select {
		case <-ctx.Done():
			a.save(ctx)
			return nil
		case err := <-a.failed:
			if ctx.Err() != nil { // asked to end, which the reconciler did first
				a.save(ctx)
			}
			return err
		case <-grace:
			a.startSaved()
		case v := <-views:
			v, ok := a.hooks.view(v)
			if !ok {
				continue
			}
			a.see(v)
			// When etcd answers again after a renewal has failed, the lease may be about to end.
			registered(a.register(ctx) && (!v.Listed || !a.renewFails || a.renew(ctx)))
		case <-retry.C:
			registered(a.register(ctx))
		case <-renew.C:
			if !a.renew(ctx) { // else it says nothing of a registration that is to be tried again
				registered(false)
			}
		case <-recheck.C:
		case <-soon.C:
		case <-saving.C:
			a.save(ctx)
			if a.own.Subnet.IsZero() || exists(a.opts.SubnetFile) {
				continue
			} // else it could not be written, or somebody removed it: publish again
		case <-a.changed:
			look.Reset(time.Until(looked.Add(lookPause))) // at once, unless it has just been looked at
			continue
		case <-look.C:
			uplink := a.uplink
			if !a.followUplink(ctx) {
				registered(false)
			}
			looked = time.Now()
			if uplink == a.uplink {
				continue
			}
		case <-a.reload:
			a.log.Info("reading everything again")
			a.own.ModRevision = 0 // to be confirmed from a fresh list
			registered(a.followUplink(ctx) && a.register(ctx))
		case <-beat.C:
			a.status.note(func(*status) {})
			continue
		}
		// News that come in a burst, as when many nodes start at once, are published together.
		since := time.Since(published)
		if wait := pause - since; wait > 0 {
			soon.Reset(wait)
		} else {
			pause = nextPause(pause, since)
			published = time.Now()
			if next := a.publish(ctx); !next.IsZero() {
				recheck.Reset(recheckIn(time.Until(next)))
			}
		}
		renew.Reset(a.untilRenewal())
	}
}

// see takes over a view of etcd. Peers that are missing because etcd lost its data are kept until they
// register again, as if they had a record that begins now. So a shorter list alone never removes a working
// peer.
func (a *Agent) see(v lease.View) {
	if v.Rewound {
		before := a.view
		before.Owners = append(slices.Clip(before.Owners), a.kept...)
		a.kept = lease.Missing(before, v, time.Now())
		a.log.Warn("etcd was emptied or restored; keeping the peers that it has forgotten", "kept", len(a.kept))
	} else if len(a.kept) > 0 {
		a.kept = lease.Missing(lease.View{Owners: a.kept}, v, a.kept[0].Seen)
	}
	a.view, a.online = v, true
}

// Reload makes the agent check its uplink and etcd again. It does not wait for that.
func (a *Agent) Reload() { poke(a.reload) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// followUplink takes over changes of the uplink while running: another address is told to the peers, another
// link or MTU changes the device. An uplink that is gone may come back. It reports whether all is done.
func (a *Agent) followUplink(ctx context.Context) bool {
	changed, err := a.findUplink()
	if err != nil || !changed || a.own.Subnet.IsZero() {
		return true // the reconciler says what is wrong with an uplink that is not there
	}
	a.own.Attrs = a.attrs()
	return a.register(ctx)
}

// waitUplink waits until the uplink is there with an address.
func (a *Agent) waitUplink(ctx context.Context) error {
	said := ""
	for {
		_, err := a.findUplink()
		if err == nil {
			return nil
		}
		a.status.note(func(*status) {})
		if err.Error() != said {
			a.log.Warn("waiting for the uplink", "err", err)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// startSaved brings the data plane up as it was saved, when etcd has not answered within the grace.
func (a *Agent) startSaved() {
	if a.online || a.state.Subnet == "" {
		return
	}
	view, ok := a.state.view()
	if !ok || a.state.moved(a.opts) {
		return
	}
	own, err := lease.ParseKey(a.state.Subnet)
	if err == nil {
		err = a.configure(view.Config)
	}
	if err != nil {
		a.log.Error("cannot start as saved", "err", err)
		return
	}
	a.view = view
	a.own = lease.Lease{Subnet: own, Attrs: a.attrs(), ID: a.state.LeaseID}
	a.log.Warn("etcd does not answer; starting as saved", "subnet", own, "peers", len(view.Leases)-1)
}

// recheckIn is how long to wait for the end of a record. It is at most a day: a record may end in the year
// 9999.
func recheckIn(ends time.Duration) time.Duration { return min(ends, 24*time.Hour) + time.Second }

// nextPause is the pause after a publication that came this long after the one before.
func nextPause(pause, since time.Duration) time.Duration {
	if since > 2*pause {
		return publishPause
	}
	return min(2*pause, publishPauseMost)
}

func (a *Agent) attrs() lease.Attrs {
	return plan.Attrs(a.config.Backend, a.opts.PublicIP, a.opts.PublicIPv6, a.state.VtepMAC, a.state.VtepMAC6)
}

// publish brings the latest view to the kernel, subnet.env and the saved state. It returns when to call it
// again because an owner's record ends; zero if none does.
func (a *Agent) publish(ctx context.Context) (next time.Time) {
	if a.own.Subnet.IsZero() {
		return time.Time{}
	}
	known := a.view
	known.Owners = append(slices.Clip(known.Owners), a.kept...)
	in := plan.Input{
		Config: a.config, Own: a.own, Uplink: a.uplink,
		VtepMAC: a.state.VtepMAC, VtepMAC6: a.state.VtepMAC6, Masquerade: a.opts.IPMasq,
		RandomFully: !a.opts.MasqRandomDisable, Forward: a.opts.ForwardRules,
		Blackhole: a.opts.BlackholeRoute, Former: a.former, Direct: kernel.OnLink,
		FormerRoutes: a.state.FormerRoutes, FormerDevices: a.state.FormerDevices,
	}
	peers, doubt, next := lease.Peers(known, a.own.Subnet, a.opts.PublicIP, a.opts.PublicIPv6, a.opts.PeerHold,
		time.Now(), func(l lease.Lease) bool { return plan.Takes(in, l) })
	in.Peers = peers
	state, rejected := a.backend.Plan(in)
	for _, r := range rejected {
		a.note("ignoring a lease that cannot be right", "subnet", r.Subnet, "reason", r.Reason)
	}
	ignored := append(doubt, a.view.Ignored...)
	for _, i := range ignored {
		a.note("ignoring a key that is no lease", "key", i.Key, "reason", i.Reason)
	}
	a.kernel.Set(a.hooks.plan(state))

	pressing := a.state.Subnet != a.own.Subnet.Key() || a.state.LeaseID != a.own.ID ||
		a.state.PublicIP != a.opts.PublicIP
	a.state.PublicIP, a.state.PublicIPv6 = a.opts.PublicIP, a.opts.PublicIPv6
	a.state.Subnet, a.state.LeaseID = a.own.Subnet.Key(), a.own.ID
	a.unsaved, a.shown, a.asShown = true, a.view, a.raw
	if pressing {
		a.save(ctx)
	}
	env := subnetEnv(a.config, a.own.Subnet, a.backend.MTU(a.config, a.uplink), a.opts.IPMasq)
	changed, err := updateFile(a.opts.SubnetFile, env, 0o644)
	switch {
	case err != nil:
		a.note("cannot write the subnet file; new pods cannot be set up", "err", err)
	case changed:
		a.log.Info("subnet file written", "path", a.opts.SubnetFile, "subnet", a.own.Subnet)
	}
	if err == nil && !a.written {
		a.written = true
		a.log.Info("ready", "subnet", a.own.Subnet, "peers", len(peers))
		notifySystemd("READY=1")
	}
	a.status.note(func(s *status) {
		s.subnet, s.written, s.peers = "", a.written && err == nil, len(peers)-len(rejected)
		if a.own.ModRevision != 0 {
			s.subnet = a.own.Subnet.String()
		}
		s.ignored = len(rejected) + len(ignored)
		s.expires = time.Time{}
		if !a.own.Reservation() && !a.renewed.IsZero() {
			s.expires = a.renewed.Add(a.opts.LeaseTTL)
		}
	})
	return next
}

// save writes the state if it has changed. It is called after the kernel was changed: a route to a peer that
// the saved state does not have could not be recognised after a restart with another network.
func (a *Agent) save(ctx context.Context) {
	if !a.unsaved {
		return
	}
	a.unsaved = false
	a.kernel.Settle(ctx)
	a.state.remember(a.shown, a.asShown)
	raw, err := a.state.encode()
	if err == nil && string(raw) == string(a.stored) {
		return
	}
	if err == nil {
		err = writeFile(filepath.Join(a.opts.StateDir, stateFile), raw, 0o600)
	}
	if err != nil {
		a.note("cannot save the state; a restart without etcd would not find it", "err", err)
		return
	}
	a.stored = raw
}

// note logs a message once for each different content.
func (a *Agent) note(message string, args ...any) {
	id := message + fmt.Sprint(args...)
	if !a.noted[id] {
		a.noted[id] = true
		a.log.Warn(message, args...)
	}
}

// random picks a number below n.
func random(n int) int { return mathrand.IntN(n) }

// avoid returns the subnet that must not be chosen; only a defect names one.
func (a *Agent) avoid() lease.Subnet {
	if a.had && a.opts.Defects.Has(defect.ForgetSubnet) {
		return a.own.Subnet
	}
	return lease.Subnet{}
}
