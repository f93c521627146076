package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

// unshare makes the machine's network and mount namespaces and returns descriptors of them.
func (m *Machine) unshare() (netFD, mntFD int, err error) {
	err = ns.OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make namespaces: %w", err)
		}
		if err := m.mount(); err != nil {
			return err
		}
		netFD, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("hold the network namespace: %w", err)
		}
		mntFD, err = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return errors.Join(fmt.Errorf("hold the mount namespace: %w", err), unix.Close(netFD))
		}
		return nil
	})
	return netFD, mntFD, err
}

// mount lays the machine's own folders over /run, /var/lib and /etc/cni in the calling thread's mount
// namespace, and sysfs of its own network namespace over /sys where the kernel allows that.
func (m *Machine) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, keep := range m.opts.Keep {
		if inside := m.Path(keep); inside != keep {
			if err := bind(keep, inside); err != nil {
				return err
			}
		}
	}
	for _, v := range views {
		target := v.path
		if target == "/etc/cni" && !exists(target) {
			if err := m.mountEtc(); err != nil {
				return err
			}
		}
		if err := bind(filepath.Join(m.opts.Dir, v.dir), target); err != nil {
			return err
		}
	}
	// sysfs shows the links of the network namespace in which it was mounted. Nothing here depends on that, but
	// tools that a user runs on the machine may. Where the kernel refuses it they see the sandbox's links.
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
	return nil
}

// mountEtc mounts a folder at /etc that shows all of the host's /etc and has a mount point for /etc/cni. The
// host may have none, and the harness makes nothing there.
func (m *Machine) mountEtc() error {
	etc := filepath.Join(m.opts.Dir, "etc")
	host := filepath.Join(etc, ".host")
	for _, dir := range []string{host, filepath.Join(etc, "cni")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("lay out /etc: %w", err)
		}
	}
	entries, err := os.ReadDir("/etc")
	if err != nil {
		return fmt.Errorf("list /etc: %w", err)
	}
	for _, e := range entries {
		err := os.Symlink(filepath.Join(".host", e.Name()), filepath.Join(etc, e.Name()))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("show %s of the host's /etc: %w", e.Name(), err)
		}
	}
	if err := bind("/etc", host); err != nil {
		return err
	}
	return bind(etc, "/etc")
}

// bind shows source, with all that is mounted in it, at target as well.
func bind(source, target string) error {
	if strings.HasPrefix(target, "/run/nemesh/") {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("make the mount point %s: %w", target, err)
		}
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show %s at %s: %w", source, target, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
