package checker

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/flannelkeys"
)

// ReadKeys reads leases and owners' records under a prefix. Keys and values that are none are left out:
// nobody holds anything by them. So are those without an IPv4 subnet, of which nothing is judged.
func ReadKeys(ctx context.Context, client *clientv3.Client, prefix string,
) (leases []flannelkeys.Lease, owners []flannelkeys.Owner, err error) {
	resp, err := client.Get(ctx, prefix+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, nil, fmt.Errorf("read leases and owners' records: %w", err)
	}
	for _, kv := range resp.Kvs {
		path, value := strings.TrimPrefix(string(kv.Key), prefix), string(kv.Value)
		if key, ok := strings.CutPrefix(path, flannelkeys.Subnets); ok {
			if l, err := flannelkeys.ParseLease(key, value); err == nil && l.Subnet.IsValid() {
				leases = append(leases, l)
			}
		}
		if key, ok := strings.CutPrefix(path, flannelkeys.Owners); ok {
			if o, err := flannelkeys.ParseOwner(key, value); err == nil && o.Subnet.IsValid() {
				owners = append(owners, o)
			}
		}
	}
	return leases, owners, nil
}
