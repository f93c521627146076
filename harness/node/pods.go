package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// podDir is the folder of the pods' network namespaces, as for `ip netns`.
const podDir = "/run/netns"

// AddNetNS makes a network namespace for a pod and pins it at /run/netns/<name> of the machine, where
// `ip netns` finds it. It returns that path, as seen on the machine.
func (m *Machine) AddNetNS(name string) (string, error) {
	path := filepath.Join(podDir, name)
	err := m.Do(func() error {
		if err := os.MkdirAll(podDir, 0o755); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Close(), pinNewNetNS(path)); err != nil {
			return errors.Join(err, os.Remove(path))
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("make a network namespace for pod %s on %s: %w", name, m.opts.Name, err)
	}
	return path, nil
}

// pinNewNetNS makes a network namespace and binds it to path. It is called from Do: the thread stays in the
// new namespace and ends.
func pinNewNetNS(path string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin it at %s: %w", path, err)
	}
	return nil
}

// RemoveNetNS removes a pod's network namespace. One that does not exist is not an error.
func (m *Machine) RemoveNetNS(name string) error {
	path := filepath.Join(podDir, name)
	err := m.Do(func() error {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the network namespace of pod %s on %s: %w", name, m.opts.Name, err)
	}
	return nil
}

// PodNetNS opens the network namespace of a pod. The caller closes it.
func (m *Machine) PodNetNS(name string) (netns.NsHandle, error) {
	handle := netns.None()
	err := m.Do(func() error {
		var err error
		handle, err = netns.GetFromPath(filepath.Join(podDir, name))
		return err
	})
	if err != nil {
		return netns.None(), fmt.Errorf("open the network namespace of pod %s on %s: %w", name, m.opts.Name, err)
	}
	return handle, nil
}
