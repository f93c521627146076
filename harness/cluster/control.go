package cluster

import (
	"context"
	"fmt"
	"github.com/nemesh/nemesh/harness/underlay"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
)

// prepareEtcd lays out the machines of etcd's members and, with TLS, their certificates.
func (c *Cluster) prepareEtcd(ctx context.Context) error {
	opts := etcd.Options{Binary: c.opts.EtcdBinary, V2: c.opts.v2()}
	if c.opts.EtcdTLS {
		var err error
		if opts.Authority, err = etcd.NewAuthority(); err != nil {
			return err
		}
	}
	for i := range c.opts.EtcdMembers {
		name := EtcdMachine
		if i > 0 {
			name = fmt.Sprintf("%s%d", EtcdMachine, i+1)
		}
		m, err := c.machine(ctx, name, underlay.Plus(c.opts.Etcd, i), nil)
		if err != nil {
			return err
		}
		c.etcdMachines = append(c.etcdMachines, m)
		if opts.Authority == nil {
			continue
		}
		if err := opts.Authority.Equip(m, etcd.Certificate{CommonName: name, Addr: m.Addr()}, false); err != nil {
			return err
		}
	}
	c.store = etcd.NewCluster(c.etcdMachines, opts)[0]
	return nil
}

// equip gives a node's agent its certificate, where etcd asks for one.
func (c *Cluster) equip(m *node.Machine) error {
	if !c.store.Secure() {
		return nil
	}
	return c.store.Authority().Equip(m, etcd.Certificate{CommonName: etcd.AgentUser}, false)
}

// etcdEndpoints lists where agents find etcd: the endpoints that the options put first, then every member.
func (c *Cluster) etcdEndpoints() []string {
	all := append([]string(nil), c.opts.EtcdEndpoints...)
	for _, m := range c.store.Members() {
		all = append(all, m.Endpoint())
	}
	return all
}
