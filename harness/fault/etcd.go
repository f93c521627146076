package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/underlay"
)

// EtcdStop ends etcd as an operator would; the heal starts it on its data.
type EtcdStop struct{}

// Name implements Fault.
func (EtcdStop) Name() string { return "etcd stopped" }

// Identity implements Fault.
func (EtcdStop) Identity() Identity { return at("etcd-stop") }

// Inject implements Fault. The proof is that the server is gone and its port refuses.
func (f EtcdStop) Inject(ctx context.Context, w *Injection) error {
	return endEtcd(ctx, w, (*etcd.Member).Stop)
}

// EtcdKill ends etcd with SIGKILL; the heal starts it on its data.
type EtcdKill struct{}

// Name implements Fault.
func (EtcdKill) Name() string { return "etcd killed" }

// Identity implements Fault.
func (EtcdKill) Identity() Identity { return at("etcd-kill") }

// Inject implements Fault. The proof is that the server is gone and its port refuses.
func (f EtcdKill) Inject(ctx context.Context, w *Injection) error {
	return endEtcd(ctx, w, (*etcd.Member).Kill)
}

// endEtcd ends every member.
func endEtcd(
	ctx context.Context, w *Injection, end func(*etcd.Member, context.Context) error,
) error {
	w.OnHeal(func(ctx context.Context) error { return etcd.StartAll(ctx, w.Etcd().Members()) })
	for _, m := range w.Etcd().Members() {
		if err := end(m, ctx); err != nil {
			return err
		}
	}
	return proveRefused(ctx, w)
}

func proveRefused(ctx context.Context, w World) error {
	return prove(ctx, proofWithin, "connections to etcd are refused", func(ctx context.Context) (bool, error) {
		for _, m := range w.Etcd().Members() {
			if err := dialMember(ctx, w, m, ""); !errors.Is(err, syscall.ECONNREFUSED) {
				return false, err
			}
		}
		return true, nil
	})
}

// dialEtcd connects to etcd's first member from a node, or from its own machine if node is empty.
func dialEtcd(ctx context.Context, w World, node string) error {
	return dialMember(ctx, w, w.Etcd(), node)
}

func dialMember(ctx context.Context, w World, m *etcd.Member, node string) error {
	return dialWithin(ctx, w, m, node, 300*time.Millisecond)
}

func dialWithin(ctx context.Context, w World, m *etcd.Member, node string, within time.Duration) error {
	u, err := url.Parse(m.Endpoint())
	if err != nil {
		return err
	}
	machine := m.Machine()
	if node != "" {
		if machine, err = w.Machine(node); err != nil {
			return err
		}
	}
	return machine.Do(func() error {
		conn, err := (&net.Dialer{Timeout: within}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// EtcdPause stops the server as it is (SIGSTOP): connections stay open and nothing answers.
type EtcdPause struct{}

// Name implements Fault.
func (EtcdPause) Name() string { return "etcd paused" }

// Identity implements Fault.
func (EtcdPause) Identity() Identity { return at("etcd-pause") }

// Inject implements Fault. The proof is a read that is not answered.
func (f EtcdPause) Inject(ctx context.Context, w *Injection) error {
	for _, m := range w.Etcd().Members() {
		w.OnHeal(func(context.Context) error { return m.Resume() })
		if err := m.Pause(); err != nil {
			return err
		}
	}
	client, err := w.Etcd().Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return prove(ctx, proofWithin, "a read is not answered", func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := client.Get(ctx, "proof")
		return errors.Is(err, context.DeadlineExceeded), err
	})
}

// EtcdWipe ends etcd and deletes its data; the heal starts it empty but for the network configuration.
type EtcdWipe struct{}

// Name implements Fault.
func (EtcdWipe) Name() string { return "etcd emptied" }

// Identity implements Fault.
func (EtcdWipe) Identity() Identity { return at("etcd-wipe") }

// Inject implements Fault. The proof is that the data is gone and that the server's port refuses, so that
// what the heal starts can only be empty.
func (f EtcdWipe) Inject(ctx context.Context, w *Injection) error {
	key := w.EtcdPrefix() + flannelkeys.Config
	var value string
	err := withEtcd(ctx, w, func(client *clientv3.Client) error {
		config, err := client.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("read the network configuration: %w", err)
		}
		if len(config.Kvs) != 1 {
			return fmt.Errorf("there is no network configuration at %s", key)
		}
		value = string(config.Kvs[0].Value)
		return nil
	})
	if err != nil {
		return err
	}
	w.OnHeal(func(ctx context.Context) error {
		if err := etcd.StartAll(ctx, w.Etcd().Members()); err != nil {
			return err
		}
		if err := withEtcd(ctx, w, func(client *clientv3.Client) error {
			_, err := client.Put(ctx, key, value)
			return err
		}); err != nil || !w.Etcd().Secure() {
			return err
		}
		return w.Etcd().EnableAuth(ctx, w.EtcdPrefix())
	})
	for _, m := range w.Etcd().Members() {
		if err := errors.Join(m.Kill(ctx), m.Wipe()); err != nil {
			return err
		}
		data := m.Machine().Path("/var/lib/etcd")
		if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %s is still there (%w)", ErrNotProven, data, err)
		}
	}
	return proveRefused(ctx, w)
}

// CutFromEtcd drops every frame between a node and etcd, both ways: nothing is refused, nothing is heard.
type CutFromEtcd struct{ Node string }

// Name implements Fault.
func (f CutFromEtcd) Name() string { return f.Node + " cut off from etcd" }

// Identity implements Fault.
func (f CutFromEtcd) Identity() Identity { return at("etcd-cut", f.Node) }

// Inject implements Fault. The proof is that the switch drops what the node sends, and that connecting is
// neither answered nor refused.
func (f CutFromEtcd) Inject(ctx context.Context, w *Injection) error {
	if _, err := w.Machine(f.Node); err != nil {
		return err
	}
	var drops []underlay.Drop
	for _, m := range w.Etcd().Members() {
		etcd := m.Machine().Name()
		drops = append(drops, underlay.Drop{From: f.Node, To: etcd}, underlay.Drop{From: etcd, To: f.Node})
	}
	w.OnHeal(func(context.Context) error { return w.Switch().Pass(w.Holder()) })
	if err := w.Switch().Drop(w.Holder(), drops...); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "the switch drops what "+f.Node+" sends to etcd",
		func(ctx context.Context) (bool, error) {
			for _, m := range w.Etcd().Members() {
				err := dialMember(ctx, w, m, f.Node)
				if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
					return false, err
				}
			}
			dropped, err := w.Switch().DroppedBy(w.Holder())
			return err == nil && slices.Max(dropped) > 0, err
		})
}
