// Package pod makes pods as a container runtime does: it makes a network namespace and calls CNI ADD through
// libcni, with the CNI plugin of the overlay under test and the real bridge and host-local plugins.
package pod

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netns"

	"github.com/nemesh/nemesh/harness/node"
)

const (
	// IfName is the name that a pod's interface is given by CNI ADD.
	IfName = "eth0"
	// cacheDir is libcni's cache of results, on the machine's disk.
	cacheDir = "/var/lib/cni"
)

// Network is a CNI network.
type Network struct {
	// ConfList is the CNI configuration list, BinDirs are the folders of its plugins.
	ConfList []byte
	BinDirs  []string
}

// Pod is a pod that ADD has set up.
type Pod struct {
	// Name is unique in the pod's world. Machine is where the pod runs.
	Name    string
	Machine *node.Machine
	// Addrs are the addresses that ADD reported.
	Addrs []netip.Prefix
	// NetNS is the pod's network namespace, open until Del.
	NetNS netns.NsHandle

	network Network
}

// Addr returns the pod's first IPv4 address.
func (p *Pod) Addr() netip.Addr {
	for _, a := range p.Addrs {
		if a.Addr().Is4() {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// Addr6 returns the pod's first IPv6 address. It is invalid if the pod has none.
func (p *Pod) Addr6() netip.Addr {
	for _, a := range p.Addrs {
		if a.Addr().Is6() {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// Add makes a pod. When CNI ADD fails, Add removes the network namespace. Anything else that is left then
// was left by the plugin.
func Add(ctx context.Context, m *node.Machine, network Network, name string) (*Pod, error) {
	if _, err := m.AddNetNS(name); err != nil {
		return nil, err
	}
	p := &Pod{Name: name, Machine: m, network: network, NetNS: netns.None()}
	var result types.Result
	err := p.do(func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) (err error) {
		result, err = cni.AddNetworkList(ctx, list, p.runtime())
		return err
	})
	if err == nil {
		err = p.take(result)
	}
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("CNI ADD of pod %s on %s: %w", name, m.Name(), err),
			m.RemoveNetNS(name),
		)
	}
	return p, nil
}

// take reads the result of ADD and opens the namespace.
func (p *Pod) take(result types.Result) error {
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	for _, ip := range r.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("the result has the address %v", ip.Address)
		}
		bits, _ := ip.Address.Mask.Size()
		p.Addrs = append(p.Addrs, netip.PrefixFrom(addr.Unmap(), bits))
	}
	if !p.Addr().IsValid() {
		return errors.New("the result has no IPv4 address")
	}
	p.NetNS, err = p.Machine.PodNetNS(p.Name)
	return err
}

// Check runs CNI CHECK.
func (p *Pod) Check(ctx context.Context) error {
	err := p.do(func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.CheckNetworkList(ctx, list, p.runtime())
	})
	if err != nil {
		return fmt.Errorf("CNI CHECK of pod %s on %s: %w", p.Name, p.Machine.Name(), err)
	}
	return nil
}

// Del runs CNI DEL and removes the network namespace. If DEL fails the namespace stays, so that Del can be
// called again.
func (p *Pod) Del(ctx context.Context) error {
	err := p.do(func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.DelNetworkList(ctx, list, p.runtime())
	})
	if err != nil {
		return fmt.Errorf("CNI DEL of pod %s on %s: %w", p.Name, p.Machine.Name(), err)
	}
	return errors.Join(p.Close(), p.Machine.RemoveNetNS(p.Name))
}

// DelWithout runs CNI DEL while one plugin, which another one calls, is missing on the machine. The network
// namespace stays, for a later Del. The error is that of DEL.
func (p *Pod) DelWithout(ctx context.Context, plugin string) error {
	const dir = "/var/lib/cni-bin-without"
	some := p.Machine.Path(dir)
	if err := os.MkdirAll(some, 0o755); err != nil {
		return fmt.Errorf("lay out the plugins but %s: %w", plugin, err)
	}
	defer func() { _ = os.RemoveAll(some) }() // links only
	for _, bin := range p.network.BinDirs {
		entries, err := os.ReadDir(bin)
		if err != nil {
			return fmt.Errorf("list the plugins: %w", err)
		}
		for _, e := range entries {
			if e.Name() == plugin || e.Name()[0] == '.' {
				continue
			}
			err := os.Symlink(filepath.Join(bin, e.Name()), filepath.Join(some, e.Name()))
			if err != nil && !errors.Is(err, os.ErrExist) {
				return fmt.Errorf("lay out the plugins but %s: %w", plugin, err)
			}
		}
	}
	without := &Pod{Name: p.Name, Machine: p.Machine, network: p.network}
	without.network.BinDirs = []string{dir}
	err := without.do(func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.DelNetworkList(ctx, list, p.runtime())
	})
	if err != nil {
		return fmt.Errorf("CNI DEL of pod %s on %s: %w", p.Name, p.Machine.Name(), err)
	}
	return nil
}

// Vanish removes the network namespace without CNI DEL, as a crash or a power failure does.
func (p *Pod) Vanish() error { return errors.Join(p.Close(), p.Machine.RemoveNetNS(p.Name)) }

// Close closes the descriptor of the network namespace. The pod stays.
func (p *Pod) Close() error {
	if !p.NetNS.IsOpen() {
		return nil
	}
	return p.NetNS.Close()
}

// GC runs CNI GC on a machine: the plugins free everything but the given pods.
func GC(ctx context.Context, m *node.Machine, network Network, alive ...*Pod) error {
	valid := []types.GCAttachment{}
	for _, p := range alive {
		valid = append(valid, types.GCAttachment{ContainerID: p.Name, IfName: IfName})
	}
	p := &Pod{Machine: m, network: network}
	err := p.do(func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
	})
	if err != nil {
		return fmt.Errorf("CNI GC on %s: %w", m.Name(), err)
	}
	return nil
}

// Status runs CNI STATUS on a machine.
func Status(ctx context.Context, m *node.Machine, network Network) error {
	p := &Pod{Machine: m, network: network}
	err := p.do(func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.GetStatusNetworkList(ctx, list)
	})
	if err != nil {
		return fmt.Errorf("CNI STATUS on %s: %w", m.Name(), err)
	}
	return nil
}

// do runs libcni on the machine. Plugins are forked from the calling thread, and the cache is the machine's.
func (p *Pod) do(fn func(*libcni.CNIConfig, *libcni.NetworkConfigList) error) error {
	list, err := libcni.ConfListFromBytes(p.network.ConfList)
	if err != nil {
		return fmt.Errorf("read the CNI configuration: %w", err)
	}
	cni := libcni.NewCNIConfigWithCacheDir(p.network.BinDirs, cacheDir, nil)
	return p.Machine.Do(func() error { return fn(cni, list) })
}

func (p *Pod) runtime() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.Name, NetNS: "/run/netns/" + p.Name, IfName: IfName}
}
