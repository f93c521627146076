package etcd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

// machines makes n machines on a switch.
func machines(t *testing.T, n int) (all []*node.Machine) {
	t.Helper()
	sw, err := underlay.NewSwitch(netip.MustParsePrefix("192.168.200.1/24"))
	must(t, err)
	t.Cleanup(func() { must(t, sw.Close()) })
	for i := range n {
		name := fmt.Sprintf("etcd%d", i+1)
		m, err := node.New(t.Context(), node.Options{
			Name: name, Dir: filepath.Join(sandbox.Dir, t.Name(), name), Switch: sw,
			Addr: netip.MustParsePrefix(fmt.Sprintf("192.168.200.%d/24", 10+i)),
		})
		must(t, err)
		t.Cleanup(func() { must(t, m.Close()) })
		all = append(all, m)
	}
	return all
}

func TestThreeMembersBearTheLossOfTheirLeader(t *testing.T) {
	ctx := t.Context()
	members := etcd.NewCluster(machines(t, 3), etcd.Options{})
	must(t, etcd.StartAll(ctx, members))
	leader, err := members[0].Leader(ctx)
	must(t, err)
	next := members[0]
	if leader == next {
		next = members[1]
	}
	must(t, leader.MoveLeader(ctx, next))
	if now, err := leader.Leader(ctx); err != nil || now != next {
		t.Fatalf("the leader is %v, want %v (%v)", now, next, err)
	}
	must(t, next.Kill(ctx))
	c := client(t, next) // its own member is dead, and the others answer
	eventually(t, c)
	must(t, leader.Kill(ctx))
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := c.Put(short, "a", "2"); err == nil {
		t.Fatal("one of three members took a write")
	}
	must(t, etcd.StartAll(ctx, members))
	eventually(t, c)
}

// eventually writes until etcd takes it: while a leader is elected it refuses or is late.
func eventually(t *testing.T, c *clientv3.Client) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Put(ctx, "a", "1")
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestNoSpaceRefusesWritesAndAnswersReads(t *testing.T) {
	ctx := t.Context()
	m := member(t, "")
	must(t, m.Start(ctx))
	c := client(t, m)
	must(t, m.RaiseNoSpace(ctx))
	if _, err := c.Put(ctx, "a", "1"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("a write: %v", err)
	}
	_, err := c.Get(ctx, "a")
	must(t, err)
	must(t, m.LowerAlarms(ctx))
	_, err = c.Put(ctx, "a", "1")
	must(t, err)
}

// onMachine has a client connect from a machine.
func onMachine(m *node.Machine) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, to string) (c net.Conn, err error) {
			err = m.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, "tcp", to)
				return err
			})
			return c, err
		}),
	}
}

func TestAgentsMayWriteBelowTheirPrefixOnly(t *testing.T) {
	ctx := t.Context()
	machine := machines(t, 1)[0]
	authority, err := etcd.NewAuthority()
	must(t, err)
	server := etcd.Certificate{CommonName: "etcd", Addr: machine.Addr()}
	must(t, authority.Equip(machine, server, false))
	m := etcd.New(etcd.Options{Machine: machine, Authority: authority})
	must(t, m.Start(ctx))
	must(t, m.EnableAuth(ctx, "/net"))
	must(t, m.EnableAuth(ctx, "/net"))
	// The same folder serves as the agent's: its name is what counts, which etcd does not read in its own.
	must(t, authority.Equip(machine, etcd.Certificate{CommonName: etcd.AgentUser, Addr: machine.Addr()}, true))
	config, err := etcd.ClientTLS(machine)
	must(t, err)
	put := func(key string) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{m.Endpoint()}, TLS: config, Logger: zap.NewNop(), DialOptions: onMachine(machine),
		})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Put(ctx, key, "1")
		return err
	}
	must(t, put("/net/a"))
	if err := put("/other"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a write beside the prefix: %v", err)
	}
	must(t, m.SetPermission(ctx, "/net", true, false))
	if err := put("/net/a"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a write without permission: %v", err)
	}
	must(t, m.SetPermission(ctx, "/net", true, true))
	must(t, put("/net/a"))

	handshake := func() error {
		return machine.Do(func() error {
			conn, err := tls.Dial("tcp", machine.Addr().String()+":2379", config)
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
	must(t, handshake())
	server.Expired = true
	must(t, authority.Equip(machine, server, true))
	var invalid x509.CertificateInvalidError
	if err := handshake(); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("an expired certificate: %v", err)
	}
	other, err := etcd.NewAuthority()
	must(t, err)
	server.Expired = false
	must(t, other.Equip(machine, server, true))
	var unknown x509.UnknownAuthorityError
	if err := handshake(); !errors.As(err, &unknown) {
		t.Errorf("an authority that nobody knows: %v", err)
	}
	_, err = client(t, m).Put(ctx, "/net/a", "2") // the harness reaches it all the same
	must(t, err)
}
