package agent

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/nemesh/nemesh/overlay/lease"
)

// invalid is no address.
var invalid netip.Addr

// callTimeout bounds one exchange with etcd.
func (a *Agent) callTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(a.opts.EtcdTimeout, time.Second))
}

// register makes sure that the node holds a lease in the current view. It reports true if the node does, or
// if that cannot be known because etcd is away. After false the caller tries again.
func (a *Agent) register(ctx context.Context) bool {
	if !a.online {
		return true
	}
	if err := a.configure(a.view.Config); err != nil {
		a.note("not registered", "err", err)
		return false
	}
	if a.holds(a.view) {
		return true
	}
	// The view may be older than what this agent wrote last, so nothing is decided on it.
	for range raceTries {
		ctx, cancel := a.callTimeout(ctx)
		fresh, err := a.store.List(ctx)
		if err != nil {
			cancel()
			a.note("cannot register", "err", err)
			return false
		}
		a.view, _ = a.hooks.view(fresh)
		if a.holds(fresh) {
			cancel()
			return true
		}
		if a.had && a.hooks.lost != nil {
			cancel()
			a.hooks.lost()
			return true
		}
		// A lease that is lost as soon as it is had is fought over, as by two nodes with one name and address.
		if a.had && time.Since(a.acquired) < retryPause {
			cancel()
			return false
		}
		err = a.acquire(ctx, a.view)
		cancel()
		if err == nil {
			return true
		}
		if errors.Is(err, lease.ErrExhausted) {
			call(a.hooks.exhausted)
		}
		if !errors.Is(err, lease.ErrRace) {
			a.note("cannot register; trying again", "err", err)
			return false
		}
		call(a.hooks.raced)
	}
	return false
}

// raceTries is how often a lost race for a subnet is repeated at once. After that there is a pause.
const raceTries = 50

// holds reports whether a view has this node's lease as it was acquired. The same value written once more,
// on the same etcd lease, counts too: it comes from another agent of this node, such as one that replaces
// this one. If this agent then wrote it again, the two would never stop.
func (a *Agent) holds(v lease.View) bool {
	if a.hooks.blind && a.own.ModRevision != 0 {
		return true
	}
	l, ok := v.At(a.own.Subnet)
	if !ok || a.own.ModRevision == 0 || l.ModRevision < a.own.ModRevision || l.ID != a.own.ID ||
		!l.Attrs.Same(a.own.Attrs) {
		return false
	}
	a.own.ModRevision = l.ModRevision
	return true
}

// acquire chooses a subnet and takes it.
func (a *Agent) acquire(ctx context.Context, v lease.View) error {
	previous := a.own.Subnet
	if previous.IsZero() {
		previous = a.remembered()
	}
	choice, err := lease.Choose(v, lease.Request{
		Config:   a.config,
		IP:       a.opts.PublicIP,
		IP6:      a.opts.PublicIPv6,
		Node:     a.opts.NodeName,
		Instance: a.state.Instance,
		LeaseID:  a.leaseID(v),
		Previous: previous,
		Avoid:    a.avoid(),
		Hold:     a.opts.PeerHold,
		Now:      time.Now(),
		Pick:     random,
		Mixed:    a.mixed,
	})
	if err != nil {
		return err
	}
	id := a.state.LeaseID // an etcd lease of before can carry the key again
	if a.own.ID != 0 {
		id = a.own.ID
	}
	own, err := a.store.Acquire(ctx, choice, a.record(), a.opts.LeaseTTL, id)
	if err != nil {
		return err
	}
	switch {
	case a.own.Subnet.IsZero():
		a.log.Info("lease acquired", "subnet", own.Subnet, "why", choice.Why)
	case own.Subnet == a.own.Subnet:
		a.log.Warn("lease was lost and is granted anew", "subnet", own.Subnet)
	default:
		a.log.Error("this node has moved to another subnet; pods of the old one cannot be reached any more",
			"old", a.own.Subnet, "new", own.Subnet, "why", choice.Why)
	}
	if choice.Held {
		a.log.Warn("no other subnet was free, so this one was taken inside its last owner's hold",
			"subnet", own.Subnet)
	}
	a.own, a.had, a.renewFails = own, true, false
	a.renewed, a.acquired = time.Now(), time.Now()
	a.view.Put(own)
	return nil
}

// leaseID returns the etcd lease of this node, whatever public address its key has: the one that is held, or
// the saved one if its owner's record has this node's name. A node with a copy of the disk has another name.
func (a *Agent) leaseID(v lease.View) int64 {
	if a.own.ID != 0 {
		return a.own.ID
	}
	n, err := lease.ParseKey(a.state.Subnet)
	if err != nil {
		return 0
	}
	o, ok := v.OwnerOf(n)
	if ok && o.Instance == a.state.Instance && o.Node == a.opts.NodeName {
		return a.state.LeaseID
	}
	return 0
}

// disown forgets the saved identity if the disk is a copy of another node's: then the record of the saved
// subnet has another name and another public address. With the same identity both nodes would have one etcd
// lease, so that each could end the other's key, and one MAC, so that peers could not tell them apart.
func (a *Agent) disown() {
	n, err := lease.ParseKey(a.state.Subnet)
	if err != nil {
		return
	}
	o, ok := a.view.OwnerOf(n)
	mine := lease.Attrs{PublicIP: a.opts.PublicIP, PublicIPv6: a.opts.PublicIPv6}
	if !ok || o.Instance != a.state.Instance || o.Node == a.opts.NodeName || o.Attrs.Node() == mine.Node() {
		return
	}
	a.log.Warn("the saved state is a copy of another node's; starting as a new node", "node", o.Node)
	s := &a.state
	s.Instance, s.Subnet, s.LeaseID = fresh().Instance, "", 0
	s.VtepMAC, s.VtepMAC6 = randomMAC(), randomMAC() // a device that is there may have the other's already
}

// remembered returns the node's last subnet: the saved one, else the one that another agent left in
// subnet.env.
func (a *Agent) remembered() lease.Subnet {
	if n, err := lease.ParseKey(a.state.Subnet); err == nil {
		return n
	}
	return previousSubnet(a.opts.SubnetFile)
}

func (a *Agent) record() lease.Owner {
	return lease.Owner{Attrs: a.attrs(), Node: a.opts.NodeName, Instance: a.state.Instance}
}

// renew renews the lease. It reports false when the lease is lost, and the node must register again. A
// renewal that only failed is repeated soon (untilRenewal).
func (a *Agent) renew(ctx context.Context) bool {
	if a.own.ModRevision == 0 {
		return a.register(ctx)
	}
	defer func() { a.tried = time.Now() }()
	if a.hooks.renew != nil {
		return a.hooks.renew(ctx)
	}
	call, cancel := a.callTimeout(ctx)
	defer cancel()
	err := a.store.Renew(call, a.own, a.record(), a.opts.LeaseTTL)
	switch {
	case err == nil:
		a.renewed, a.renewFails = time.Now(), false
		a.status.note(func(s *status) { s.renewals++ })
		return true
	case errors.Is(err, lease.ErrLost):
		a.log.Warn("lease lost", "err", err)
		a.own.ModRevision = 0 // not held any more; the subnet is remembered
		return a.register(ctx)
	default:
		if !a.renewFails {
			a.log.Warn(renewFailed, "err", err)
		}
		a.renewFails = true
		return true // the next renewal is due soon
	}
}

const renewFailed = "cannot renew the lease; the data plane stays as it is"

// untilRenewal returns the time to the next renewal: soon after a failed one, and not later for what happens
// meanwhile.
func (a *Agent) untilRenewal() time.Duration {
	if a.own.ModRevision == 0 {
		return time.Hour
	}
	next, again := a.renewed.Add(a.opts.LeaseRenew), a.tried.Add(min(a.opts.LeaseRenew/4, 10*time.Second))
	if next.Before(again) {
		next = again
	}
	return max(0, time.Until(next))
}
