package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Save copies the server's data to a folder beside it and returns that folder. It stops the server and
// starts it again; clients that retry do not notice.
func (m *Member) Save(ctx context.Context) (string, error) {
	if err := m.Stop(ctx); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(m.opts.Machine.Path("/var/lib"), "etcd-copy-")
	if err != nil {
		return "", fmt.Errorf("save etcd: %w", err)
	}
	if err := os.CopyFS(dir, os.DirFS(m.opts.Machine.Path(dataDir))); err != nil {
		return "", fmt.Errorf("save etcd: %w", err)
	}
	return dir, m.Start(ctx)
}

// Restore replaces the data of the server by a copy of Save. The server must not be running.
func (m *Member) Restore(dir string) error {
	if err := m.Wipe(); err != nil {
		return err
	}
	data := m.opts.Machine.Path(dataDir)
	if err := errors.Join(os.Mkdir(data, 0o700), os.CopyFS(data, os.DirFS(dir))); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	return nil
}
