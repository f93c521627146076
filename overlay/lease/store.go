package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	// ErrLost says that the lease is not ours any more: it expired, was revoked, or its key was deleted or
	// overwritten.
	ErrLost = errors.New("the lease is lost")
	// ErrRace says that another node was faster; list again and choose again.
	ErrRace = errors.New("another node took the subnet first")
)

// Store reads and writes the leases of one network. Every call is bounded by its context.
type Store struct {
	client *clientv3.Client
	prefix string
	log    *slog.Logger
}

// NewStore works on the keys under prefix, such as "/coreos.com/network".
func NewStore(client *clientv3.Client, prefix string, log *slog.Logger) *Store {
	return &Store{client: client, prefix: strings.TrimRight(prefix, "/"), log: log}
}

func (s *Store) root() string             { return s.prefix + "/" }
func (s *Store) configKey() string        { return s.prefix + "/config" }
func (s *Store) leaseKey(n Subnet) string { return s.prefix + "/subnets/" + n.Key() }
func (s *Store) ownerKey(n Subnet) string { return s.prefix + "/owners/" + n.Key() }
func (s *Store) subnets() string          { return s.prefix + "/subnets/" }
func (s *Store) owners() string           { return s.prefix + "/owners/" }

// List reads everything in one request.
func (s *Store) List(ctx context.Context) (View, error) {
	keys, revision, err := s.read(ctx)
	if err != nil {
		return View{}, err
	}
	return s.view(keys, revision, nil), nil
}

func (s *Store) read(ctx context.Context) (map[string]*mvccpb.KeyValue, int64, error) {
	resp, err := s.client.Get(ctx, s.root(), clientv3.WithPrefix())
	if err != nil {
		return nil, 0, fmt.Errorf("list %s in etcd: %w", s.root(), err)
	}
	keys := make(map[string]*mvccpb.KeyValue, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		keys[string(kv.Key)] = kv
	}
	return keys, resp.Header.Revision, nil
}

// Acquire takes the chosen subnet. It goes on with the node's former etcd lease, id, if that is still alive.
// Else it grants one with the given TTL, and revokes it when another node took the subnet first (ErrRace). A
// reservation stays without TTL.
func (s *Store) Acquire(ctx context.Context, c Choice, o Owner, ttl time.Duration, id int64) (Lease, error) {
	value, err := json.Marshal(o.Attrs)
	if err != nil {
		return Lease{}, fmt.Errorf("encode the lease of %s: %w", c.Subnet, err)
	}
	reserved := c.Existing != nil && c.Existing.Reservation()
	granted := false
	if reserved {
		id = 0
	} else if id, granted, err = s.leaseID(ctx, c, ttl, id); err != nil {
		return Lease{}, err
	}
	key := s.leaseKey(c.Subnet)
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", 0)
	if c.Existing != nil {
		unchanged = clientv3.Compare(clientv3.ModRevision(key), "=", c.Existing.ModRevision)
	}
	conditions := []clientv3.Cmp{unchanged}
	if c.Since != 0 {
		quiet := clientv3.Compare(clientv3.ModRevision(s.subnets()), "<", c.Since+1).WithPrefix()
		conditions = append(conditions, quiet)
	}
	ops, err := s.acquireOps(c, o, ttl, string(value), id)
	if err != nil {
		return Lease{}, err
	}
	resp, err := s.client.Txn(ctx).If(conditions...).Then(ops...).Commit()
	if err == nil && !resp.Succeeded {
		err = ErrRace
	}
	if err != nil {
		if granted {
			s.revoke(ctx, id)
		}
		return Lease{}, fmt.Errorf("acquire %s: %w", c.Subnet, err)
	}
	if c.Existing != nil && c.Existing.ID != 0 && c.Existing.ID != id {
		s.revoke(ctx, c.Existing.ID)
	}
	return Lease{Subnet: c.Subnet, Attrs: o.Attrs, ID: id, ModRevision: resp.Header.Revision}, nil
}

// acquireOps are what acquiring writes: the key, the record, and the removal of a lease that does not fit.
func (s *Store) acquireOps(
	c Choice,
	o Owner,
	ttl time.Duration,
	value string,
	id int64,
) ([]clientv3.Op, error) {
	record, err := s.recordOp(c.Subnet, o, ttl)
	if err != nil {
		return nil, err
	}
	ops := []clientv3.Op{
		clientv3.OpPut(s.leaseKey(c.Subnet), value, clientv3.WithLease(clientv3.LeaseID(id))), record,
	}
	if c.Unfit != nil && c.Unfit.Subnet != c.Subnet {
		ops = append(
			ops,
			clientv3.OpDelete(s.leaseKey(c.Unfit.Subnet)),
			clientv3.OpDelete(s.ownerKey(c.Unfit.Subnet)),
		)
	}
	return ops, nil
}

func (s *Store) recordOp(n Subnet, o Owner, ttl time.Duration) (clientv3.Op, error) {
	o.Seen, o.TTL = time.Now().UTC().Truncate(time.Second), seconds(ttl)
	raw, err := json.Marshal(o)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode the record of %s: %w", n, err)
	}
	return clientv3.OpPut(s.ownerKey(n), string(raw)), nil
}

// leaseID finds an etcd lease to hang the key on: the node's own of before if it lives and has the TTL
// wanted, else a new one.
func (s *Store) leaseID(ctx context.Context, c Choice, ttl time.Duration, id int64) (int64, bool, error) {
	ids := []int64{id}
	if c.Existing != nil {
		ids = append(ids, c.Existing.ID)
	}
	for _, old := range ids {
		if old == 0 {
			continue
		}
		resp, err := s.client.TimeToLive(ctx, clientv3.LeaseID(old))
		switch {
		case err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return 0, false, fmt.Errorf("look up etcd lease %x: %w", old, err)
		case err != nil || resp.TTL <= 0:
			continue
		case resp.GrantedTTL != seconds(ttl):
			if old == id && (c.Existing == nil || c.Existing.ID != id) {
				s.revoke(ctx, old) // nothing of ours hangs on it that is not written anew
			}
			continue
		}
		if _, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(old)); err == nil {
			return old, false, nil
		}
	}
	resp, err := s.client.Grant(ctx, seconds(ttl))
	if err != nil {
		return 0, false, fmt.Errorf("grant an etcd lease: %w", err)
	}
	return int64(resp.ID), true, nil
}

// seconds rounds a TTL up to what etcd takes.
func seconds(ttl time.Duration) int64 {
	return max(1, int64((ttl+time.Second-1)/time.Second))
}

// revoke ends an etcd lease that nothing of ours hangs on. A failure leaves it to its TTL.
func (s *Store) revoke(ctx context.Context, id int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, err := s.client.Revoke(
		ctx,
		clientv3.LeaseID(id),
	); err != nil &&
		!errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.log.Warn("could not revoke an etcd lease that is not needed; it will expire", "lease", id, "err", err)
	}
}

// Renew keeps the lease alive and refreshes the owner's record. If the key is not the one that was acquired,
// it writes nothing and returns ErrLost.
func (s *Store) Renew(ctx context.Context, l Lease, o Owner, ttl time.Duration) error {
	if !l.Reservation() {
		_, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(l.ID))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("renew %s: %w: etcd lease %x is gone", l.Subnet, ErrLost, l.ID)
		}
		if err != nil {
			return fmt.Errorf("renew %s: %w", l.Subnet, err)
		}
	}
	record, err := s.recordOp(l.Subnet, o, ttl)
	if err != nil {
		return err
	}
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.leaseKey(l.Subnet)), "=", l.ModRevision)).
		Then(record).Commit()
	if err != nil {
		return fmt.Errorf("renew %s: %w", l.Subnet, err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("renew %s: %w: its key was changed", l.Subnet, ErrLost)
	}
	return nil
}

// Release gives up a subnet. It deletes the key and the record if they are still this node's, and revokes
// the etcd lease.
func (s *Store) Release(ctx context.Context, l Lease) error {
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.leaseKey(l.Subnet)), "=", l.ModRevision)).
		Then(clientv3.OpDelete(s.leaseKey(l.Subnet)), clientv3.OpDelete(s.ownerKey(l.Subnet))).Commit()
	if err != nil {
		return fmt.Errorf("release %s: %w", l.Subnet, err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("release %s: %w", l.Subnet, ErrLost)
	}
	if !l.Reservation() {
		s.revoke(ctx, l.ID)
	}
	return nil
}

// parsed is what one key was understood to be, at one revision of it.
type parsed struct {
	revision int64
	lease    Lease
	owner    Owner
	err      error
}

// view makes sense of raw keys. What is no lease or record is left out and listed. cache keeps what was
// understood of keys that have not changed; nil for none.
func (s *Store) view(keys map[string]*mvccpb.KeyValue, revision int64, cache map[string]parsed) View {
	v := View{Revision: revision}
	for _, key := range sortedKeys(keys) {
		kv := keys[key]
		if key == s.configKey() {
			v.Config = kv.Value
			continue
		}
		lease := strings.HasPrefix(key, s.subnets())
		if !lease && !strings.HasPrefix(key, s.owners()) {
			continue
		}
		p, known := cache[key]
		if !known || p.revision != kv.ModRevision {
			p = s.parse(key, kv, lease)
			if cache != nil {
				cache[key] = p
			}
		}
		switch {
		case p.err != nil:
			v.Ignored = append(v.Ignored, Ignored{Key: key, Reason: p.err.Error()})
			if !p.lease.Subnet.IsZero() {
				v.Junk = append(v.Junk, p.lease)
			}
		case lease:
			v.Leases = append(v.Leases, p.lease)
		default:
			v.Owners = append(v.Owners, p.owner)
		}
	}
	return v
}

func (s *Store) parse(key string, kv *mvccpb.KeyValue, lease bool) parsed {
	p := parsed{revision: kv.ModRevision}
	if lease {
		p.lease, p.err = parseLease(strings.TrimPrefix(key, s.subnets()), kv.Value, kv.Lease, kv.ModRevision)
	} else {
		p.owner, p.err = parseOwner(strings.TrimPrefix(key, s.owners()), kv.Value, kv.ModRevision)
	}
	return p
}
