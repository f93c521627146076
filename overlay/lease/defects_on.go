//go:build defects

package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// RenewUnconditionally grants a new etcd lease and writes the key, whoever holds it now.
func (s *Store) RenewUnconditionally(ctx context.Context, l Lease, ttl time.Duration) (Lease, error) {
	granted, err := s.client.Grant(ctx, seconds(ttl))
	if err != nil {
		return Lease{}, fmt.Errorf("grant an etcd lease: %w", err)
	}
	value, err := json.Marshal(l.Attrs)
	if err != nil {
		return Lease{}, fmt.Errorf("encode the lease of %s: %w", l.Subnet, err)
	}
	resp, err := s.client.Put(ctx, s.leaseKey(l.Subnet), string(value), clientv3.WithLease(granted.ID))
	if err != nil {
		return Lease{}, fmt.Errorf("renew %s: %w", l.Subnet, err)
	}
	l.ID, l.ModRevision = int64(granted.ID), resp.Header.Revision
	return l, nil
}
