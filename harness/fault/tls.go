package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
)

// secure says that a world's etcd does not speak TLS.
func secure(w World) error {
	if !w.Etcd().Secure() {
		return errors.New("etcd does not speak TLS: build the world with Options.EtcdTLS")
	}
	return nil
}

// EtcdCertExpired has etcd present a certificate that has expired. The members are restarted, so that every
// client meets it; the heal gives the valid one back.
type EtcdCertExpired struct{}

// Name implements Fault.
func (EtcdCertExpired) Name() string { return "etcd's certificate expired" }

// Identity implements Fault.
func (EtcdCertExpired) Identity() Identity { return at("etcd-cert-expired") }

// Available implements Limited.
func (EtcdCertExpired) Available(w World) error { return secure(w) }

// Inject implements Fault. The proof is a node's handshake that fails for it.
func (f EtcdCertExpired) Inject(ctx context.Context, w *Injection) error {
	if err := presentAnother(ctx, w, w.Etcd().Authority(), true); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "a handshake fails for an expired certificate",
		func(context.Context) (bool, error) {
			var invalid x509.CertificateInvalidError
			err := handshake(w, w.Nodes()[0])
			return errors.As(err, &invalid) && invalid.Reason == x509.Expired, err
		})
}

// EtcdCertReplaced has etcd present a certificate of another authority, which no agent trusts. The members
// are restarted, so that every client meets it; the heal gives the trusted one back.
type EtcdCertReplaced struct{}

// Name implements Fault.
func (EtcdCertReplaced) Name() string { return "etcd's certificate replaced by another authority's" }

// Identity implements Fault.
func (EtcdCertReplaced) Identity() Identity { return at("etcd-cert-replaced") }

// Available implements Limited.
func (EtcdCertReplaced) Available(w World) error { return secure(w) }

// Inject implements Fault. The proof is a node's handshake that fails for it.
func (f EtcdCertReplaced) Inject(ctx context.Context, w *Injection) error {
	other, err := etcd.NewAuthority()
	if err != nil {
		return err
	}
	if err := presentAnother(ctx, w, other, false); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "a handshake fails for an unknown authority",
		func(context.Context) (bool, error) {
			var unknown x509.UnknownAuthorityError
			err := handshake(w, w.Nodes()[0])
			return errors.As(err, &unknown), err
		})
}

// presentAnother gives every member another certificate and restarts those that run.
func presentAnother(ctx context.Context, w *Injection, by *etcd.Authority, expired bool) error {
	for _, m := range w.Etcd().Members() {
		on := m.Machine()
		// What is put back is a new one of the true authority: another fault may be in place now.
		good := etcd.Certificate{CommonName: on.Name(), Addr: on.Addr()}
		w.OnHeal(func(ctx context.Context) error {
			if err := w.Etcd().Authority().Equip(on, good, true); err != nil {
				return err
			}
			return m.Start(ctx)
		})
		bad := good
		bad.Expired = expired
		if err := by.Equip(on, bad, true); err != nil {
			return err
		}
		if !m.Running() {
			continue
		}
		if err := m.Kill(ctx); err != nil {
			return err
		}
	}
	return etcd.StartAll(ctx, w.Etcd().Members())
}

// handshake connects to etcd as a node's agent would.
func handshake(w World, name string) error {
	machine, err := w.Machine(name)
	if err != nil {
		return err
	}
	config, err := etcd.ClientTLS(machine)
	if err != nil {
		return err
	}
	u, err := url.Parse(w.Etcd().Endpoint())
	if err != nil {
		return err
	}
	return machine.Do(func() error {
		conn, err := tls.Dial("tcp", u.Host, config)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // what matters has been read by then
		// In TLS 1.3 the server looks at the client's certificate after the client is done: its answer, an
		// alert or the first frame of HTTP/2, shows what it thinks of it.
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		_, err = conn.Read(make([]byte, 1))
		return err
	})
}

// ClientCertExpired replaces the certificate of a node's agent by one that has expired and has etcd
// restarted, so that the agent must show it; the heal gives it a valid one.
type ClientCertExpired struct{ Node string }

// Name implements Fault.
func (f ClientCertExpired) Name() string { return "client certificate of " + f.Node + " expired" }

// Identity implements Fault.
func (f ClientCertExpired) Identity() Identity { return at("client-cert-expired", f.Node) }

// Available implements Limited.
func (ClientCertExpired) Available(w World) error { return secure(w) }

// Inject implements Fault. The proof is etcd's alert when the node connects.
func (f ClientCertExpired) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	authority := w.Etcd().Authority()
	w.OnHeal(func(context.Context) error {
		return authority.Equip(machine, etcd.Certificate{CommonName: etcd.AgentUser}, true)
	})
	err = authority.Equip(machine, etcd.Certificate{CommonName: etcd.AgentUser, Expired: true}, true)
	if err != nil {
		return err
	}
	for _, m := range w.Etcd().Members() {
		if err := m.Kill(ctx); err != nil {
			return err
		}
	}
	w.OnHeal(func(ctx context.Context) error { return etcd.StartAll(ctx, w.Etcd().Members()) })
	if err := etcd.StartAll(ctx, w.Etcd().Members()); err != nil {
		return err
	}
	return prove(
		ctx,
		proofWithin,
		"etcd refuses the certificate of "+f.Node,
		func(context.Context) (bool, error) {
			err := handshake(w, f.Node)
			return refusedByPeer(err), err
		},
	)
}

// refusedByPeer recognises an alert that the other side has sent.
func refusedByPeer(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// EtcdPermissionRemoved takes away what agents may do with the overlay's keys; the heal gives it back.
// KeepRead takes away writing alone.
type EtcdPermissionRemoved struct{ KeepRead bool }

// Name implements Fault.
func (f EtcdPermissionRemoved) Name() string {
	if f.KeepRead {
		return "permission to write removed at etcd"
	}
	return "permission removed at etcd"
}

// Identity implements Fault.
func (f EtcdPermissionRemoved) Identity() Identity {
	if f.KeepRead {
		return at("etcd-write-removed")
	}
	return at("etcd-permission-removed")
}

// Available implements Limited.
func (EtcdPermissionRemoved) Available(w World) error { return secure(w) }

// Inject implements Fault. The proof is that a write with a node's certificate is denied.
func (f EtcdPermissionRemoved) Inject(ctx context.Context, w *Injection) error {
	set := func(ctx context.Context, read, write bool) error {
		return withEtcd(ctx, w, func(*clientv3.Client) error {
			ctx, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			return w.Etcd().SetPermission(ctx, w.EtcdPrefix(), read, write)
		})
	}
	w.OnHeal(func(ctx context.Context) error { return set(ctx, true, true) })
	if err := set(ctx, f.KeepRead, false); err != nil {
		return err
	}
	machine, err := w.Machine(w.Nodes()[0])
	if err != nil {
		return err
	}
	return prove(ctx, proofWithin, "a write of an agent is denied", func(ctx context.Context) (bool, error) {
		err := putAsAgent(ctx, w, machine)
		return errors.Is(err, rpctypes.ErrPermissionDenied), err
	})
}

// putAsAgent tries to write below the overlay's prefix with a node's certificate.
func putAsAgent(ctx context.Context, w World, machine *node.Machine) error {
	config, err := etcd.ClientTLS(machine)
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{w.Etcd().Endpoint()}, TLS: config, Logger: zap.NewNop(),
		DialOptions: dialFrom(machine),
	})
	if err != nil {
		return fmt.Errorf("open a client on %s: %w", machine.Name(), err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = client.Put(ctx, w.EtcdPrefix()+"/proof", "")
	return err
}
