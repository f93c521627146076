// Package node simulates one machine of a world: a network namespace, its own /run, /var/lib and /etc/cni,
// processes, the network namespaces of its pods, and reboot.
//
// Only descriptors keep a machine's network and mount namespaces alive. PowerOff closes them: links, rules,
// pods and mounts are gone, as when a real machine loses power. Only the disk survives a reboot. It is a
// folder on the sandbox's tmpfs.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/underlay"
)

const (
	// Uplink is the name of every machine's link to the switch.
	Uplink = "eth0"
	// Bridge is what the CNI bridge plugin calls the bridge of a machine's pods by default.
	Bridge = "cni0"
)

// Options describe a machine.
type Options struct {
	// Name is the machine's name and that of its port on the switch; 15 characters at most (IFNAMSIZ).
	Name string
	// Dir is the folder that holds the machine's disk. It must be on the sandbox's tmpfs.
	Dir string
	// Switch is where the uplink is plugged in, Addr its address.
	Switch *underlay.Switch
	Addr   netip.Prefix
	// Keep lists folders of the host that stay visible although they lie under /run, /var/lib or /etc/cni, such
	// as a checkout under /var/lib.
	Keep []string
	// Output, if set, gets every line that a process on the machine writes. It is called from several
	// goroutines.
	Output func(Line)
}

// Line is one line of output of a process.
type Line struct {
	Machine, Process string
	At               time.Time
	Text             string
}

// Machine is one machine. Its methods may be called from several goroutines, except that a machine must not
// be used while it reboots.
type Machine struct {
	opts    Options
	started atomic.Int64 // processes that were given a socket
	boots   atomic.Int64
	addr6   netip.Prefix // of the uplink, invalid for none

	mu        sync.Mutex
	on        bool
	net, mnt  int
	nl        *netlink.Handle
	processes []*Process
}

// views are the folders that each machine has for itself: its path on the machine, and the folder under
// Options.Dir that is mounted there. /run is mounted last, because it hides the disks of all machines.
var views = []struct{ path, dir string }{
	{"/var/lib", "var-lib"}, {"/etc/cni", "etc-cni"}, {"/run", "run"},
}

// New makes a machine, plugs it in and switches it on.
func New(ctx context.Context, opts Options) (*Machine, error) {
	if len(opts.Name) == 0 || len(opts.Name) > unix.IFNAMSIZ-1 {
		return nil, fmt.Errorf("machine name %q: it names an interface, so it has 1 to %d characters",
			opts.Name, unix.IFNAMSIZ-1)
	}
	m := &Machine{opts: opts}
	for _, v := range views {
		if err := os.MkdirAll(filepath.Join(opts.Dir, v.dir), 0o755); err != nil {
			return nil, fmt.Errorf("lay out the disk of %s: %w", opts.Name, err)
		}
	}
	if err := m.PowerOn(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// Name returns the machine's name.
func (m *Machine) Name() string { return m.opts.Name }

// Addr returns the address of the machine's uplink.
func (m *Machine) Addr() netip.Addr { return m.opts.Addr.Addr() }

// On reports whether the machine is switched on.
func (m *Machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

// NetNS returns the machine's network namespace. It is valid until the machine is switched off.
func (m *Machine) NetNS() netns.NsHandle {
	m.mu.Lock()
	defer m.mu.Unlock()
	return netns.NsHandle(m.net)
}

// Netlink returns a netlink handle in the machine's network namespace. It is valid until the machine is
// switched off.
func (m *Machine) Netlink() *netlink.Handle {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nl
}

// Path returns where the harness finds a file of the machine's /run, /var/lib or /etc/cni. It returns other
// paths as they are, because machines share them.
func (m *Machine) Path(path string) string {
	for _, v := range views {
		if rest, ok := strings.CutPrefix(path, v.path); ok && (rest == "" || rest[0] == '/') {
			return filepath.Join(m.opts.Dir, v.dir, rest)
		}
	}
	return path
}

// Do runs fn on a thread inside the machine's network and mount namespaces and returns its error. Processes
// that fn starts run on the machine. Goroutines that fn starts do not.
func (m *Machine) Do(fn func() error) error {
	m.mu.Lock()
	on, netFD, mntFD := m.on, m.net, m.mnt
	m.mu.Unlock()
	if !on {
		return fmt.Errorf("%s is switched off", m.opts.Name)
	}
	return ns.OnThread(func() error {
		// A thread can enter a mount namespace only when it shares its root and working directory with no
		// other (setns(2), CLONE_NEWNS).
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("prepare to enter %s: %w", m.opts.Name, err)
		}
		if err := unix.Setns(mntFD, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter the mounts of %s: %w", m.opts.Name, err)
		}
		if err := unix.Setns(netFD, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network of %s: %w", m.opts.Name, err)
		}
		return fn()
	})
}

// Sysctl sets a kernel parameter on the machine. Dots separate, a slash stands for a dot inside a name, as
// in "net.ipv4.neigh.flannel/1.app_solicit" (sysctl(8)).
func (m *Machine) Sysctl(key, value string) error {
	err := m.Do(func() error { return os.WriteFile(sysctlPath(key), []byte(value), 0o644) })
	if err != nil {
		return fmt.Errorf("set %s=%s on %s: %w", key, value, m.opts.Name, err)
	}
	return nil
}

// ReadSysctl returns a kernel parameter of the machine, without its newline.
func (m *Machine) ReadSysctl(key string) (string, error) {
	var value string
	err := m.Do(func() error {
		raw, err := os.ReadFile(sysctlPath(key))
		value = strings.TrimSpace(string(raw))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read %s on %s: %w", key, m.opts.Name, err)
	}
	return value, nil
}

// SysctlName returns a device's name as a key of Sysctl has it: with a slash for each dot.
func SysctlName(device string) string { return strings.ReplaceAll(device, ".", "/") }

func sysctlPath(key string) string {
	swap := strings.NewReplacer(".", "/", "/", ".")
	return "/proc/sys/" + swap.Replace(key)
}

// PowerOn gives the machine namespaces of its own and plugs it in.
func (m *Machine) PowerOn(context.Context) error {
	netFD, mntFD, err := m.unshare()
	if err != nil {
		return fmt.Errorf("switch on %s: %w", m.opts.Name, err)
	}
	nl, err := netlink.NewHandleAt(netns.NsHandle(netFD))
	if err != nil {
		return errors.Join(
			fmt.Errorf("open netlink on %s: %w", m.opts.Name, err),
			unix.Close(netFD),
			unix.Close(mntFD),
		)
	}
	m.boots.Add(1)
	m.mu.Lock()
	m.on, m.net, m.mnt, m.nl = true, netFD, mntFD, nl
	m.mu.Unlock()
	if err := m.boot(); err != nil {
		return errors.Join(err, m.PowerOff(context.Background()))
	}
	return nil
}

func (m *Machine) boot() error {
	lo, err := m.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback of %s: %w", m.opts.Name, err)
	}
	if err := m.nl.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring up the loopback of %s: %w", m.opts.Name, err)
	}
	if err := m.opts.Switch.Plug(m.opts.Name, netns.NsHandle(m.net), Uplink, m.opts.Addr); err != nil {
		return err
	}
	return m.plugAddr6()
}

// SetAddr6 gives the uplink an IPv6 address beside the IPv4 one. It is set again at every reboot and Replug.
func (m *Machine) SetAddr6(addr netip.Prefix) error {
	m.addr6 = addr
	return m.plugAddr6()
}

// plugAddr6 adds the IPv6 address without duplicate address detection (RFC 4862), which would take a second.
func (m *Machine) plugAddr6() error {
	if !m.addr6.IsValid() {
		return nil
	}
	link, err := m.nl.LinkByName(Uplink)
	if err == nil {
		err = m.nl.AddrAdd(link, &netlink.Addr{Flags: unix.IFA_F_NODAD, IPNet: &net.IPNet{
			IP: m.addr6.Addr().AsSlice(), Mask: net.CIDRMask(m.addr6.Bits(), 128),
		}})
	}
	if err != nil {
		return fmt.Errorf("give the uplink of %s the address %s: %w", m.opts.Name, m.addr6, err)
	}
	return nil
}

// PowerOff kills every process on the machine and drops its namespaces and its /run; its disk stays.
func (m *Machine) PowerOff(ctx context.Context) error {
	m.mu.Lock()
	processes := m.processes
	m.processes = nil
	m.mu.Unlock()
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.Kill(ctx))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.on {
		return errors.Join(errs...)
	}
	m.on = false
	m.nl.Close()
	errs = append(errs, killStrays(ctx, m.net))
	// The uplink must be gone before the machine comes back with one of the same name. The kernel frees the
	// namespace, and with it the other end of the cable, only later.
	errs = append(errs, m.opts.Switch.Unplug(m.opts.Name), unix.Close(m.net), unix.Close(m.mnt))
	return errors.Join(append(errs, empty(filepath.Join(m.opts.Dir, "run")))...)
}

// Boot returns how often the machine has been switched on. Two different values mean a reboot in between.
func (m *Machine) Boot() int64 { return m.boots.Load() }

// Replug replaces the uplink by one with the same name and address and another index and MAC, as when a
// network card is replaced.
func (m *Machine) Replug() error {
	if err := m.opts.Switch.Unplug(m.opts.Name); err != nil {
		return err
	}
	if err := m.opts.Switch.Plug(m.opts.Name, m.NetNS(), Uplink, m.opts.Addr); err != nil {
		return err
	}
	return m.plugAddr6()
}

// Close switches the machine off and deletes its disk.
func (m *Machine) Close() error {
	return errors.Join(m.PowerOff(context.Background()), os.RemoveAll(m.opts.Dir))
}

func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
