package fault

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/node"
)

// EtcdReset ends a node's connections to etcd, and with them its watches, and refuses new ones until it is
// healed. Frames that are merely dropped for a while are sent again by TCP, and a watch goes on as if
// nothing had been.
type EtcdReset struct{ Node string }

// Name implements Fault.
func (f EtcdReset) Name() string { return "connections of " + f.Node + " to etcd reset" }

// Identity implements Fault.
func (f EtcdReset) Identity() Identity { return at("etcd-reset", f.Node) }

// Mechanism implements Mechanical.
func (f EtcdReset) Mechanism() string { return "sock_diag on the node, nftables on etcd's machines" }

// resetWithin bounds how long a connection may live in a kernel that cannot end it by itself: it is reset at
// its next segment, which for one that is idle is Go's TCP keep-alive after 15 s.
const resetWithin = 20 * time.Second

// Inject implements Fault. The proof is that the node had connections to etcd, has none any more, and is
// refused another.
func (f EtcdReset) Inject(ctx context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	var before int
	err = prove(ctx, proofWithin, f.Node+" has a connection to etcd that can be reset",
		func(context.Context) (_ bool, err error) {
			before, err = connections(machine, w.Etcd().Members())
			return before > 0, err
		})
	if err != nil {
		return err
	}
	for _, m := range w.Etcd().Members() {
		w.OnHeal(func(context.Context) error { return passResets(m.Machine(), w.Holder()) })
		if err := refuse(m.Machine(), machine.Addr(), w.Holder()); err != nil {
			return err
		}
	}
	if err := endConnections(machine, w.Etcd().Members()); err != nil {
		return err
	}
	return prove(ctx, resetWithin, f.Node+" has no connection to etcd and gets none",
		func(ctx context.Context) (bool, error) {
			left, err := connections(machine, w.Etcd().Members())
			if err != nil || left > 0 {
				return false, errors.Join(err, fmt.Errorf("%d connections of %d stand", left, before))
			}
			for _, m := range w.Etcd().Members() {
				if err := dialMember(ctx, w, m, f.Node); !errors.Is(err, syscall.ECONNREFUSED) {
					return false, err
				}
			}
			return true, nil
		})
}

// resetTable is the nftables table of a holder, which goes as a whole.
func resetTable(holder string) *nftables.Table {
	return &nftables.Table{Name: "nemesh " + holder, Family: nftables.TableFamilyIPv4}
}

// refuse has a member's machine answer whatever one address sends to etcd with a TCP reset.
func refuse(m *node.Machine, from netip.Addr, holder string) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
	if err != nil {
		return fmt.Errorf("open nftables at %s: %w", m.Name(), err)
	}
	table := conn.AddTable(resetTable(holder))
	chain := conn.AddChain(&nftables.Chain{
		Name: "input", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	const source, destination = 12, 2 // offsets in the headers of IPv4 (RFC 791) and TCP (RFC 9293)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: source, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: from.AsSlice()},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: destination, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, etcd.ClientPort)},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	}})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("have %s reset connections: %w", m.Name(), err)
	}
	return nil
}

// passResets takes away what refuse has put there; there may be nothing.
func passResets(m *node.Machine, holder string) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(m.NetNS())))
	if err != nil {
		return fmt.Errorf("open nftables at %s: %w", m.Name(), err)
	}
	conn.DelTable(resetTable(holder))
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("have %s take connections again: %w", m.Name(), err)
	}
	return nil
}

// endConnections has a machine's kernel end its connections to the members of etcd, as ss -K does. One built
// without CONFIG_INET_DIAG_DESTROY does not, and then they end at their next segment.
func endConnections(m *node.Machine, members []*etcd.Member) error {
	return m.Do(func() error {
		sockets, err := netlink.SocketDiagTCP(unix.AF_INET)
		if err != nil {
			return nil //nolint:nilerr // no tcp_diag: see above
		}
		for _, s := range sockets {
			for _, member := range members {
				if s.ID.DestinationPort != etcd.ClientPort ||
					!s.ID.Destination.Equal(member.Machine().Addr().AsSlice()) {
					continue
				}
				_ = netlink.SocketDestroy(
					&net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)},
					&net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)},
				)
			}
		}
		return nil
	})
}

// connections counts a machine's established TCP connections to the members of etcd.
func connections(m *node.Machine, members []*etcd.Member) (n int, err error) {
	err = m.Do(func() error {
		raw, err := os.ReadFile("/proc/thread-self/net/tcp")
		if err != nil {
			return fmt.Errorf("list the connections of %s: %w", m.Name(), err)
		}
		for _, member := range members {
			n += established(string(raw), netip.AddrPortFrom(member.Machine().Addr(), etcd.ClientPort))
		}
		return nil
	})
	return n, err
}

// established counts the connections to a peer in the text of /proc/net/tcp (proc(5)): addresses are the
// bytes of the network in the order of the host, in hexadecimal, and 01 is the state ESTABLISHED.
func established(table string, peer netip.AddrPort) (n int) {
	a := peer.Addr().As4()
	remote := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a[:]), peer.Port())
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 3 && fields[2] == remote && fields[3] == "01" {
			n++
		}
	}
	return n
}
