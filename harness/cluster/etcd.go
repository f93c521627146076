package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
)

// etcdControl is etcd as a control plane.
type etcdControl struct {
	first    *etcd.Member // which knows the others
	machines []*node.Machine
	prefix   string
	// before are endpoints that agents are given before the real ones.
	before []string
	// v2 says that agents keep their keys in etcd's v2 API as well.
	v2 bool
	// vni is the network's, for leases that do not tell.
	vni int
}

// newEtcd prepares etcd's members, one on each machine, and with TLS their certificates.
func newEtcd(machines []*node.Machine, prefix string, o Options) (*etcdControl, error) {
	opts := etcd.Options{Binary: o.EtcdBinary, V2: o.v2()}
	if o.EtcdTLS {
		var err error
		if opts.Authority, err = etcd.NewAuthority(); err != nil {
			return nil, err
		}
		for _, m := range machines {
			own := etcd.Certificate{CommonName: m.Name(), Addr: m.Addr()}
			if err := opts.Authority.Equip(m, own, false); err != nil {
				return nil, err
			}
		}
	}
	return &etcdControl{
		first: etcd.NewCluster(machines, opts)[0], machines: machines, prefix: prefix,
		before: o.EtcdEndpoints, v2: opts.V2, vni: o.VNI,
	}, nil
}

// Machines implements Control.
func (e *etcdControl) Machines() []*node.Machine { return e.machines }

// Start implements Control. With TLS, etcd tells its clients apart from the first start on.
func (e *etcdControl) Start(ctx context.Context) error {
	if err := etcd.StartAll(ctx, e.first.Members()); err != nil {
		return err
	}
	if e.first.Secure() {
		return e.first.EnableAuth(ctx, e.prefix)
	}
	return nil
}

// Stop implements Control.
func (e *etcdControl) Stop(ctx context.Context) error {
	var errs []error
	for _, m := range e.first.Members() {
		errs = append(errs, m.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Running implements Control.
func (e *etcdControl) Running() bool {
	return slices.ContainsFunc(e.first.Members(), (*etcd.Member).Running)
}

// Endpoints implements Control.
func (e *etcdControl) Endpoints() []string {
	all := slices.Clone(e.before)
	for _, m := range e.first.Members() {
		all = append(all, m.Endpoint())
	}
	return all
}

// Admit implements Control.
func (e *etcdControl) Admit(m *node.Machine) error {
	if !e.first.Secure() {
		return nil
	}
	return e.first.Authority().Equip(m, etcd.Certificate{CommonName: etcd.AgentUser}, false)
}

// Introduce implements Control.
func (e *etcdControl) Introduce(s *driver.Spec) {
	s.EtcdEndpoints, s.EtcdPrefix = e.Endpoints(), e.prefix
	if e.first.Secure() {
		s.EtcdCAFile, s.EtcdCertFile, s.EtcdKeyFile = etcd.CAFile, etcd.CertFile, etcd.KeyFile
	}
}

// Configure implements Control.
func (e *etcdControl) Configure(ctx context.Context, config string) error {
	err := e.with(ctx, func(client *clientv3.Client) error {
		_, err := client.Put(ctx, e.prefix+flannelkeys.Config, config)
		return err
	})
	if err == nil && e.v2 {
		err = e.first.PutV2(ctx, e.prefix+flannelkeys.Config, config, 0)
	}
	if err != nil {
		return fmt.Errorf("put the network configuration: %w", err)
	}
	return nil
}

// Leases implements Control.
func (e *etcdControl) Leases(ctx context.Context) ([]Lease, error) {
	var leases []Lease
	err := e.with(ctx, func(client *clientv3.Client) error {
		dir := e.prefix + flannelkeys.Subnets
		resp, err := client.Get(ctx, dir, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			l, err := flannelkeys.ParseLease(strings.TrimPrefix(string(kv.Key), dir), string(kv.Value))
			if err != nil {
				continue // nonsense, which a scenario may have put there
			}
			if l.ID = kv.Lease; l.ID != 0 {
				ttl, err := client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
				if err != nil {
					return fmt.Errorf("time to live of lease %s: %w", kv.Key, err)
				}
				l.TTL = time.Duration(ttl.TTL) * time.Second
			}
			leases = append(leases, l)
		}
		return nil
	})
	if err == nil && e.v2 {
		var more []Lease
		more, err = e.leasesV2(ctx)
		leases = append(leases, more...)
		slices.SortFunc(leases, func(a, b Lease) int { return strings.Compare(a.Key, b.Key) })
	}
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	return leases, nil
}

// Owners implements Control. Keys and values that are no records are left out.
func (e *etcdControl) Owners(ctx context.Context) (owners []flannelkeys.Owner, err error) {
	err = e.with(ctx, func(client *clientv3.Client) error {
		dir := e.prefix + flannelkeys.Owners
		resp, err := client.Get(ctx, dir, clientv3.WithPrefix())
		if err != nil {
			return fmt.Errorf("read the owners' records: %w", err)
		}
		for _, kv := range resp.Kvs {
			o, err := flannelkeys.ParseOwner(strings.TrimPrefix(string(kv.Key), dir), string(kv.Value))
			if err == nil {
				owners = append(owners, o)
			}
		}
		return nil
	})
	return owners, err
}

// leasesV2 reads the leases of agents that speak etcd's v2 API. They have no id, and those that do not tell
// their VNI have it from the network configuration.
func (e *etcdControl) leasesV2(ctx context.Context) ([]Lease, error) {
	keys, err := e.first.ListV2(ctx, strings.TrimSuffix(e.prefix+flannelkeys.Subnets, "/"))
	if err != nil {
		return nil, err
	}
	var leases []Lease
	for _, k := range keys {
		l, err := flannelkeys.ParseLease(path.Base(k.Key), k.Value)
		if err != nil {
			continue // nonsense, as above
		}
		l.VNI, l.TTL = cmp.Or(l.VNI, e.vni), time.Duration(k.TTL)*time.Second
		leases = append(leases, l)
	}
	return leases, nil
}

// GiveAway implements Control. The lease stands where the agents look for leases: in etcd's v2 API for old
// ones.
func (e *etcdControl) GiveAway(ctx context.Context, l Lease, ttl time.Duration,
) (takeBack func(context.Context) error, err error) {
	at := e.prefix + flannelkeys.Subnets + flannelkeys.Key(l.Subnet, l.Subnet6)
	if e.v2 {
		if err := e.first.PutV2(ctx, at, l.JSON(), ttl); err != nil {
			return nil, fmt.Errorf("put a lease at %s: %w", at, err)
		}
		return func(ctx context.Context) error { return e.first.DeleteV2(ctx, at) }, nil
	}
	var id clientv3.LeaseID
	err = e.with(ctx, func(client *clientv3.Client) error {
		grant, err := client.Grant(ctx, int64(ttl.Seconds()))
		if err != nil {
			return err
		}
		id = grant.ID
		if _, err = client.Put(ctx, at, l.JSON(), clientv3.WithLease(id)); err != nil {
			_, revoked := client.Revoke(context.WithoutCancel(ctx), id)
			return errors.Join(err, revoked)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("put a lease at %s: %w", at, err)
	}
	return func(ctx context.Context) error {
		return e.with(ctx, func(client *clientv3.Client) error {
			_, err := client.Revoke(ctx, id)
			return err
		})
	}, nil
}

// Retire implements Control.
func (e *etcdControl) Retire(ctx context.Context, key string) error {
	err := e.with(ctx, func(client *clientv3.Client) error {
		for _, dir := range []string{flannelkeys.Owners, flannelkeys.Subnets} {
			if _, err := client.Delete(ctx, e.prefix+dir+key); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && e.v2 {
		err = e.first.DeleteV2(ctx, e.prefix+flannelkeys.Subnets+key)
	}
	if err != nil {
		return fmt.Errorf("retire %s: %w", key, err)
	}
	return nil
}

// with calls do with a client of etcd.
func (e *etcdControl) with(ctx context.Context, do func(*clientv3.Client) error) error {
	client, err := e.first.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}
