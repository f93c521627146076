package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"time"
)

// EtcdStop ends etcd as an operator would; the heal starts it on its data.
type EtcdStop struct{}

// Name implements Fault.
func (EtcdStop) Name() string { return "etcd stopped" }

// Inject implements Fault. The proof is that the server is gone and its port refuses.
func (f EtcdStop) Inject(ctx context.Context, w World) error {
	w.OnHeal(f.Name(), w.Etcd().Start)
	if err := w.Etcd().Stop(ctx); err != nil {
		return err
	}
	return proveRefused(ctx, w)
}

// EtcdKill ends etcd with SIGKILL; the heal starts it on its data.
type EtcdKill struct{}

// Name implements Fault.
func (EtcdKill) Name() string { return "etcd killed" }

// Inject implements Fault. The proof is that the server is gone and its port refuses.
func (f EtcdKill) Inject(ctx context.Context, w World) error {
	w.OnHeal(f.Name(), w.Etcd().Start)
	if err := w.Etcd().Kill(ctx); err != nil {
		return err
	}
	return proveRefused(ctx, w)
}

func proveRefused(ctx context.Context, w World) error {
	return prove(ctx, proofWithin, "connections to etcd are refused", func(ctx context.Context) (bool, error) {
		err := dialEtcd(ctx, w, "")
		return errors.Is(err, syscall.ECONNREFUSED), err
	})
}

// dialEtcd connects to etcd from a node, or from etcd's own machine if node is empty.
func dialEtcd(ctx context.Context, w World, node string) error {
	u, err := url.Parse(w.Etcd().Endpoint())
	if err != nil {
		return err
	}
	machine := w.Etcd().Machine()
	if node != "" {
		if machine, err = w.Machine(node); err != nil {
			return err
		}
	}
	return machine.Do(func() error {
		conn, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext(ctx, "tcp", u.Host)
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

// Inject implements Fault. The proof is a read that is not answered.
func (f EtcdPause) Inject(ctx context.Context, w World) error {
	w.OnHeal(f.Name(), func(context.Context) error { return w.Etcd().Resume() })
	if err := w.Etcd().Pause(); err != nil {
		return err
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

// Inject implements Fault. The proof is that the data is gone and that the server's port refuses, so that what
// the heal starts can only be empty.
func (f EtcdWipe) Inject(ctx context.Context, w World) error {
	client, err := w.Etcd().Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	key := w.EtcdPrefix() + "/config"
	config, err := client.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("read the network configuration: %w", err)
	}
	if len(config.Kvs) != 1 {
		return fmt.Errorf("there is no network configuration at %s", key)
	}
	value := string(config.Kvs[0].Value)
	w.OnHeal(f.Name(), func(ctx context.Context) error {
		if !w.Etcd().Running() {
			if err := w.Etcd().Start(ctx); err != nil {
				return err
			}
		}
		client, err := w.Etcd().Client(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		_, err = client.Put(ctx, key, value)
		return err
	})
	if err := w.Etcd().Kill(ctx); err != nil {
		return err
	}
	if err := w.Etcd().Wipe(); err != nil {
		return err
	}
	data := w.Etcd().Machine().Path("/var/lib/etcd")
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s is still there (%w)", ErrNotProven, data, err)
	}
	return proveRefused(ctx, w)
}

// CutFromEtcd drops every frame between a node and etcd, both ways: nothing is refused, nothing is heard.
type CutFromEtcd struct{ Node string }

// Name implements Fault.
func (f CutFromEtcd) Name() string { return f.Node + " cut off from etcd" }

// Inject implements Fault. The proof is that the switch drops what the node sends, and that connecting is
// neither answered nor refused.
func (f CutFromEtcd) Inject(ctx context.Context, w World) error {
	if _, err := w.Machine(f.Node); err != nil {
		return err
	}
	etcd := w.Etcd().Machine().Name()
	w.OnHeal(f.Name(), func(context.Context) error { return w.Switch().Heal(f.Node, etcd) })
	if err := w.Switch().Cut(f.Node, etcd); err != nil {
		return err
	}
	return prove(ctx, proofWithin, "the switch drops what "+f.Node+" sends to etcd",
		func(ctx context.Context) (bool, error) {
			err := dialEtcd(ctx, w, f.Node)
			if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
				return false, err
			}
			dropped, err := w.Switch().Dropped(f.Node, etcd)
			return dropped > 0, err
		})
}
