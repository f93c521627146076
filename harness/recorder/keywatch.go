package recorder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/reports/record"
)

// lookEvery is how often the harness looks whether etcd runs again.
const lookEvery = 20 * time.Millisecond

// listWithin bounds the first list of keys after etcd has started.
const listWithin = 20 * time.Second

// keyWatch is what the harness knows of the overlay's keys from its own watch, not from what any agent says.
type keyWatch struct {
	mu     sync.Mutex
	known  map[string]string // key after the prefix, to value
	unseen string            // why changes are not seen now; "" while they are
}

// lines lists the leases that are known.
func (k *keyWatch) lines() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var lines []string
	for key, value := range k.known {
		if subnet, ok := strings.CutPrefix("/"+key, flannelkeys.Subnets); ok {
			lines = append(lines, subnet+" "+value)
		}
	}
	slices.Sort(lines)
	if k.unseen != "" {
		lines = append(lines, "(as they were: "+k.unseen+")")
	}
	return lines
}

// watchKeys records the changes of the overlay's keys, and the starts and ends of etcd, until ctx ends.
func (r *Recorder) watchKeys(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var seen *node.Process
	for {
		if p := r.c.Etcd().Process(); p != nil && p.Running() {
			if p != seen {
				r.c.NoteProcess(cluster.EtcdMachine, p)
				seen = p
			}
			r.followKeys(ctx, p)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// followKeys lists the keys and watches them, for the life of one etcd process: the next may have other
// data, which a watch that goes on by its revision would not show.
func (r *Recorder) followKeys(ctx context.Context, p *node.Process) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	client, err := r.c.Etcd().Client(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	listing, done := context.WithTimeout(ctx, listWithin)
	resp, err := client.Get(listing, r.c.EtcdPrefix()+"/", clientv3.WithPrefix())
	done()
	if err != nil {
		return // it is starting, or gone again
	}
	r.compareKeys(resp)
	err = r.follow(
		client.Watch(ctx, r.c.EtcdPrefix()+"/", clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1)),
	)
	why := "etcd has ended"
	if p.Running() {
		if ctx.Err() != nil {
			return // the cluster is torn down
		}
		why = fmt.Sprintf("the watch has ended: %v", err)
	}
	r.keys.mu.Lock()
	r.keys.unseen = why
	r.keys.mu.Unlock()
	r.noteLease(record.Lease{Change: record.LeaseUnseen, Value: why})
}

// follow records changes until the watch ends, and returns why it did.
func (r *Recorder) follow(changes clientv3.WatchChan) error {
	var why error
	for resp := range changes {
		if why = resp.Err(); why != nil {
			continue
		}
		for _, e := range resp.Events {
			r.keyChanged(e)
		}
	}
	return why
}

func (r *Recorder) keyChanged(e *clientv3.Event) {
	k := &r.keys
	key := strings.TrimPrefix(string(e.Kv.Key), r.c.EtcdPrefix()+"/")
	k.mu.Lock()
	change := record.Lease{
		Change: record.LeasePut, Key: key, Value: string(e.Kv.Value), Was: k.known[key],
		ID: e.Kv.Lease, Revision: e.Kv.ModRevision,
	}
	if e.Type == mvccpb.DELETE {
		change.Change = record.LeaseDeleted
		delete(k.known, key)
	} else {
		k.known[key] = change.Value
	}
	k.mu.Unlock()
	r.noteLease(change)
}

// compareKeys records how the keys differ from those that were known before the watch was lost.
func (r *Recorder) compareKeys(now *clientv3.GetResponse) {
	k := &r.keys
	var changes []record.Lease
	k.mu.Lock()
	before := k.known
	k.known, k.unseen = map[string]string{}, ""
	for _, kv := range now.Kvs {
		key := strings.TrimPrefix(string(kv.Key), r.c.EtcdPrefix()+"/")
		k.known[key] = string(kv.Value)
		if was, there := before[key]; !there || was != string(kv.Value) {
			changes = append(changes, record.Lease{
				Change: record.LeaseFound, Key: key, Value: string(kv.Value),
				Was: was, ID: kv.Lease, Revision: kv.ModRevision,
			})
		}
	}
	for key, was := range before {
		if _, there := k.known[key]; !there {
			changes = append(changes, record.Lease{
				Change: record.LeaseMissed, Key: key, Was: was,
				Revision: now.Header.Revision,
			})
		}
	}
	k.mu.Unlock()
	if len(changes) == 0 && before != nil {
		changes = []record.Lease{{Change: record.LeaseFound, Revision: now.Header.Revision}}
	}
	for _, l := range changes {
		r.noteLease(l)
	}
}

func (r *Recorder) noteLease(l record.Lease) {
	r.rec.Write(record.Event{Kind: record.KindLease, Lease: &l})
}

// leases lists the leases that are known, without time to live.
func (k *keyWatch) leases() []cluster.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	var leases []cluster.Lease
	for key, value := range k.known {
		if subnet, ok := strings.CutPrefix("/"+key, flannelkeys.Subnets); ok {
			if l, err := flannelkeys.ParseLease(subnet, value); err == nil {
				leases = append(leases, l)
			}
		}
	}
	return leases
}
