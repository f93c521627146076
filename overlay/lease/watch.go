package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// firstPause is the time after the first failed attempt to list and watch; it doubles up to the time-out.
const firstPause = 50 * time.Millisecond

// Watcher follows the keys of a network. It lists them and watches for changes. It lists again whenever the
// watch may have missed something: after an error, a compaction or a lost connection, and when etcd's
// revision has gone back. That is so after a restore from a snapshot, where a watch for a future revision
// would stay silent.
type Watcher struct {
	store          *Store
	check, timeout time.Duration

	// revision and config are etcd's revision when it was followed last, and the one at which the network
	// configuration was created: a history in which they do not recur is another one. They belong to Run.
	revision, config int64
	// said is what the keys of subnets said when they were leases last. It belongs to Run.
	said map[Subnet]Attrs

	mu   sync.Mutex
	seen time.Time
	err  error
}

// NewWatcher makes a watcher. It asks etcd for its revision at the interval check. An answer later than
// timeout counts as none.
func NewWatcher(store *Store, check, timeout time.Duration) *Watcher {
	return &Watcher{store: store, check: check, timeout: timeout}
}

// Seen returns when etcd last answered, and the error of the attempt after that, if it failed.
func (w *Watcher) Seen() (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, w.err
}

func (w *Watcher) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.seen = time.Now()
	}
	w.err = err
}

// Run calls changed with each new view, until ctx ends. Calls do not overlap.
func (w *Watcher) Run(ctx context.Context, changed func(View)) {
	log := w.store.log
	pause, away := firstPause, false
	for ctx.Err() == nil {
		err := w.once(ctx, func(v View) {
			if away {
				log.Info("etcd answers again", "revision", v.Revision)
			}
			pause, away = firstPause, false
			changed(v)
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRelist) {
			log.Info("listing again", "why", err)
			continue
		}
		w.note(err)
		if !away {
			log.Warn("etcd does not answer; the data plane stays as it is", "err", err)
			away = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, w.timeout)
	}
}

// errRelist says that the watch may have missed something.
var errRelist = errors.New("the watch may have missed changes")

// once lists, then watches until something goes wrong.
func (w *Watcher) once(ctx context.Context, changed func(View)) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer cancel(nil)

	list, done := context.WithTimeout(ctx, w.timeout)
	keys, revision, err := w.store.read(list)
	done()
	if err != nil {
		return err
	}
	w.note(nil)
	cache := map[string]parsed{}
	view := w.store.view(keys, revision, cache)
	view.Rewound, view.Listed = w.rewound(keys, revision), true
	w.recall(view)
	changed(view)

	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	latest := newRevision(revision)
	defer func() { w.revision = latest.get() }()
	background.Go(func() { w.watchConnection(ctx, cancel) })
	background.Go(func() { w.watchRevision(ctx, cancel, latest) })

	heard := make(chan struct{}, 1)
	background.Go(func() { w.watchStream(ctx, cancel, heard) }) // Watch does not return before etcd answers
	// From the revision of the list and not the next: while that is in the future, which it is until somebody
	// writes, etcd answers no request for a sign of life (server/storage/mvcc, progressIfSync).
	events := w.store.client.Watch(ctx, w.store.root(), clientv3.WithPrefix(), clientv3.WithRev(revision),
		clientv3.WithCreatedNotify())
	for resp := range events {
		select {
		case heard <- struct{}{}:
		default:
		}
		if err := resp.Err(); err != nil {
			if errors.Is(err, rpctypes.ErrCompacted) {
				return fmt.Errorf("%w: the watch fell behind a compaction", errRelist)
			}
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("watch %s: %w", w.store.root(), err)
		}
		w.note(nil)
		latest.raise(resp.Header.Revision)
		fresh := slices.DeleteFunc(resp.Events, func(e *clientv3.Event) bool {
			return e.Kv.ModRevision <= revision // of the list
		})
		for _, e := range fresh {
			apply(keys, e)
		}
		if len(fresh) > 0 {
			view = w.store.view(keys, resp.Header.Revision, cache)
			w.recall(view)
			changed(view)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("watch %s: the watch ended", w.store.root())
}

// recall gives junk the attributes that its key had while it was a lease.
func (w *Watcher) recall(v View) {
	said := map[Subnet]Attrs{}
	for _, l := range v.Leases {
		said[l.Subnet] = l.Attrs
	}
	for i, l := range v.Junk {
		if attrs, ok := w.said[l.Subnet]; ok {
			v.Junk[i].Attrs, said[l.Subnet] = attrs, attrs
		}
	}
	w.said = said
}

// rewound reports whether a list is from another history of etcd than the one followed before.
func (w *Watcher) rewound(keys map[string]*mvccpb.KeyValue, revision int64) bool {
	var config int64
	if kv, ok := keys[w.store.configKey()]; ok {
		config = kv.CreateRevision
	}
	rewound := revision < w.revision || (w.config != 0 && config != w.config)
	w.revision, w.config = revision, config
	return rewound
}

func apply(keys map[string]*mvccpb.KeyValue, e *clientv3.Event) {
	if e.Type == clientv3.EventTypeDelete {
		delete(keys, string(e.Kv.Key))
		return
	}
	keys[string(e.Kv.Key)] = e.Kv
}

func sortedKeys(keys map[string]*mvccpb.KeyValue) []string { return slices.Sorted(maps.Keys(keys)) }

// watchConnection asks for a new list when the connection to etcd was lost and is back: the server may have
// been replaced meanwhile, and the client would resume the watch without a word.
func (w *Watcher) watchConnection(ctx context.Context, relist context.CancelCauseFunc) {
	conn := w.store.client.ActiveConnection()
	state := conn.GetState()
	for lost := false; conn.WaitForStateChange(ctx, state); {
		state = conn.GetState()
		if state == connectivity.Ready && lost {
			relist(fmt.Errorf("%w: the connection to etcd was lost and is back", errRelist))
			return
		}
		lost = lost || state != connectivity.Ready
		if state == connectivity.Idle {
			conn.Connect()
		}
	}
}

// watchRevision asks etcd for its revision now and then. It notices a server that went back in time, and one
// that accepts connections and does not answer.
func (w *Watcher) watchRevision(ctx context.Context, relist context.CancelCauseFunc, latest *revision) {
	tick := time.NewTicker(w.check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		known := latest.get()
		ask, done := context.WithTimeout(ctx, w.timeout)
		resp, err := w.store.client.Get(ask, w.store.configKey(), clientv3.WithCountOnly())
		done()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			relist(fmt.Errorf("ask etcd for its revision: %w", err))
			return
		case resp.Header.Revision < known:
			relist(fmt.Errorf("%w: etcd went back from revision %d to %d", errRelist, known, resp.Header.Revision))
			return
		}
		w.note(nil)
	}
}

// watchStream asks over the watch itself for a sign of life now and then. A client takes its endpoints in
// turn, so what another endpoint answers says nothing about the one that the watch is on, which may have
// been stopped with its connections open.
func (w *Watcher) watchStream(ctx context.Context, relist context.CancelCauseFunc, heard <-chan struct{}) {
	tick := time.NewTicker(w.check)
	defer tick.Stop()
	for {
		select { // the first is that the watch stands
		case <-ctx.Done():
			return
		case <-heard:
		case <-time.After(w.timeout):
			relist(fmt.Errorf("%w: the endpoint that the watch is on has gone silent", errRelist))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-heard:
		default:
		}
		ask, done := context.WithTimeout(ctx, w.timeout)
		err := w.store.client.RequestProgress(ask)
		done()
		if err != nil && ctx.Err() == nil {
			relist(fmt.Errorf("%w: ask over the watch for a sign of life: %w", errRelist, err))
			return
		}
	}
}

// revision is the latest revision that the watch has reached.
type revision struct {
	mu sync.Mutex
	n  int64
}

func newRevision(n int64) *revision { return &revision{n: n} }

func (r *revision) raise(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n = max(r.n, n)
}

func (r *revision) get() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}
