package checker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// value is a lease's or record's JSON, as far as it is judged.
type value struct {
	PublicIP    netip.Addr
	BackendType string
	BackendData struct {
		VNI     int
		VtepMAC string
	}
}

// ownerRecord is an owner's record.
type ownerRecord struct {
	Attrs value
	Seen  time.Time
	TTL   int64
}

// ReadKeys reads leases and owners' records under a prefix. Keys and values that are none are left out:
// nobody holds anything by them.
func ReadKeys(ctx context.Context, client *clientv3.Client, prefix string) ([]Lease, []Owner, error) {
	resp, err := client.Get(ctx, prefix+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, nil, fmt.Errorf("read leases and owners' records: %w", err)
	}
	keys := make(map[string]string, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		keys[string(kv.Key)] = string(kv.Value)
	}
	leases, owners := ParseKeys(keys, prefix)
	return leases, owners, nil
}

// ParseKeys is ReadKeys for keys and their values that have been read already, in the order of the keys.
func ParseKeys(keys map[string]string, prefix string) (leases []Lease, owners []Owner) {
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		dir, name, _ := strings.Cut(strings.TrimPrefix(path, prefix+"/"), "/")
		raw := []byte(keys[path])
		subnet, ok := subnetOf(name)
		if !ok {
			continue
		}
		switch dir {
		case "subnets":
			var v value
			if json.Unmarshal(raw, &v) == nil {
				l := v.lease(subnet)
				_, v6, _ := strings.Cut(name, "&")
				l.Subnet6, _ = netip.ParsePrefix(strings.ReplaceAll(v6, "-", "/"))
				leases = append(leases, l)
			}
		case "owners":
			var r ownerRecord
			if json.Unmarshal(raw, &r) == nil {
				owners = append(owners, Owner{Lease: r.Attrs.lease(subnet),
					Ends: r.Seen.Add(time.Duration(r.TTL) * time.Second)})
			}
		}
	}
	return leases, owners
}

func (v value) lease(subnet netip.Prefix) Lease {
	l := Lease{Subnet: subnet, PublicIP: v.PublicIP, Backend: v.BackendType, VNI: v.BackendData.VNI}
	if mac, err := net.ParseMAC(v.BackendData.VtepMAC); err == nil {
		l.VtepMAC = mac.String()
	}
	return l
}

// subnetOf reads a key such as 10.5.3.0-24; of a dual-stack one, the IPv4 part.
func subnetOf(name string) (netip.Prefix, bool) {
	v4, _, _ := strings.Cut(name, "&")
	p, err := netip.ParsePrefix(strings.ReplaceAll(v4, "-", "/"))
	return p, err == nil && p.Addr().Is4() && p == p.Masked()
}

// Value returns the JSON that a plain flannel node would put into etcd for a lease.
func (l Lease) Value() string {
	if l.Backend == HostGW {
		return fmt.Sprintf(`{"PublicIP":%q,"PublicIPv6":null,"BackendType":%q}`, l.PublicIP, l.Backend)
	}
	return fmt.Sprintf(
		`{"PublicIP":%q,"PublicIPv6":null,"BackendType":%q,"BackendData":{"VNI":%d,"VtepMAC":%q}}`,
		l.PublicIP,
		l.Backend,
		l.VNI,
		l.VtepMAC,
	)
}

// Key returns the last part of the lease's key, such as 10.5.3.0-24.
func (l Lease) Key() string { return key(l.Subnet) }
