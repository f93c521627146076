package checker

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/flannelkeys"
)

// peerTTL is how long the lease of a peer that joins lives should nobody end it.
const peerTTL = time.Minute

// putPeer puts the lease of a plain flannel peer where the agents look for leases, which is etcd's v2 API
// for old ones. The function that it returns ends the lease.
func (k *Checker) putPeer(ctx context.Context, client *clientv3.Client, peer flannelkeys.Lease,
) (leave func(context.Context) error, err error) {
	path := k.c.EtcdPrefix() + flannelkeys.Subnets + flannelkeys.Key(peer.Subnet, peer.Subnet6)
	if k.c.SpeaksV2() {
		if err := k.c.Etcd().PutV2(ctx, path, peer.JSON(), peerTTL); err != nil {
			return nil, fmt.Errorf("put its lease: %w", err)
		}
		return func(ctx context.Context) error { return k.c.Etcd().DeleteV2(ctx, path) }, nil
	}
	grant, err := client.Grant(ctx, int64(peerTTL.Seconds()))
	if err != nil {
		return nil, fmt.Errorf("grant its lease: %w", err)
	}
	if _, err := client.Put(ctx, path, peer.JSON(), clientv3.WithLease(grant.ID)); err != nil {
		return nil, fmt.Errorf("put its lease: %w", err)
	}
	return func(ctx context.Context) error {
		_, err := client.Revoke(ctx, grant.ID)
		return err
	}, nil
}
