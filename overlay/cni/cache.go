package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cache keeps the delegate's configuration of each pod, so that DEL works when the subnet file is gone or
// has changed. There is one file for each container, named by its id, as in flannel's plugin.
type cache struct{ dir string }

func (c cache) path(container string) string { return filepath.Join(c.dir, container) }

// put writes a pod's configuration so that a crash leaves the whole file or none.
func (c cache) put(container string, delegate []byte) (err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("keep the configuration of container %s: %w", container, err)
	}
	temp, err := os.CreateTemp(c.dir, ".tmp-*")
	if err != nil {
		return fmt.Errorf("keep the configuration of container %s: %w", container, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("keep the configuration of container %s: %w", container, err),
				os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(delegate)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), c.path(container))
}

// get reads a pod's configuration; nil if there is none.
func (c cache) get(container string) ([]byte, error) {
	raw, err := os.ReadFile(c.path(container))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

func (c cache) remove(container string) error {
	if err := os.Remove(c.path(container)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget the configuration of container %s: %w", container, err)
	}
	return nil
}

// networksFile holds the overlay's networks in which pods were set up, one a line. No container id begins
// with a dot (CNI's specification).
const networksFile = ".networks"

// networks returns the given networks and those of before, and remembers them all.
func (c cache) networks(now []netip.Prefix) ([]netip.Prefix, error) {
	raw, err := c.get(networksFile)
	if err != nil {
		return nil, fmt.Errorf("read the networks of before: %w", err)
	}
	all := slices.Clone(now)
	for _, line := range strings.Fields(string(raw)) {
		if n, err := netip.ParsePrefix(line); err == nil && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	var text strings.Builder
	for _, n := range all {
		fmt.Fprintln(&text, n)
	}
	if text.String() == string(raw) {
		return all, nil
	}
	return all, c.put(networksFile, []byte(text.String()))
}

// containers lists whose configuration is kept.
func (c cache) containers() ([]string, error) {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name()[0] != '.' {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}
