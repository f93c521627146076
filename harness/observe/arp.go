package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

// ARP is one ARP packet (RFC 826) seen on a link.
type ARP struct {
	At time.Time
	// Request is false for a reply. Out says that this machine sent it.
	Request, Out bool
	// Sender and Target are the packet's protocol addresses: a request asks for Target.
	Sender, Target netip.Addr
}

// ARPWatch collects the ARP packets on a link until it is closed.
type ARPWatch struct {
	file *os.File
	done sync.WaitGroup

	mu   sync.Mutex
	seen []ARP
}

// maxSeen bounds what a watch keeps.
const maxSeen = 100_000

// WatchARP opens a packet socket for ARP on a link of a network namespace.
func WatchARP(handle netns.NsHandle, link string) (*ARPWatch, error) {
	w := &ARPWatch{}
	err := ns.Do(handle, func() error {
		iface, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		// Only a socket for all protocols sees what goes out (net/core/dev.c, dev_queue_xmit_nit); the filter
		// leaves ARP.
		protocol := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(protocol))
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: iface.Index}); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		w.file = os.NewFile(uintptr(fd), "arp")
		return filterARP(fd)
	})
	if err != nil {
		return nil, fmt.Errorf("watch ARP on %s: %w", link, err)
	}
	w.done.Go(w.read)
	return w, nil
}

// filterARP lets only ARP through to a packet socket.
func filterARP(fd int) error {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

func (w *ARPWatch) read() {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, 256)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buffer, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // closed
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if failed != nil || !ok {
			continue
		}
		if a, ok := parseARP(buffer[:n]); ok {
			a.At, a.Out = time.Now(), link.Pkttype == unix.PACKET_OUTGOING
			w.mu.Lock()
			if len(w.seen) < maxSeen {
				w.seen = append(w.seen, a)
			}
			w.mu.Unlock()
		}
	}
}

// parseARP reads an ARP packet for IPv4 over Ethernet, without its link header.
func parseARP(b []byte) (ARP, bool) {
	if len(b) < 28 || binary.BigEndian.Uint16(b[2:]) != unix.ETH_P_IP || b[4] != 6 || b[5] != 4 {
		return ARP{}, false
	}
	operation := binary.BigEndian.Uint16(b[6:])
	return ARP{
		Request: operation == 1,
		Sender:  netip.AddrFrom4([4]byte(b[14:18])),
		Target:  netip.AddrFrom4([4]byte(b[24:28])),
	}, operation == 1 || operation == 2
}

// Seen returns the packets so far, in order.
func (w *ARPWatch) Seen() []ARP {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]ARP(nil), w.seen...)
}

// Asked counts the requests for an address that went out at or after t, and the replies that came in for it.
func (w *ARPWatch) Asked(addr netip.Addr, t time.Time) (requests, replies int) {
	for _, a := range w.Seen() {
		switch {
		case a.At.Before(t):
		case a.Request && a.Out && a.Target == addr:
			requests++
		case !a.Request && !a.Out && a.Sender == addr:
			replies++
		}
	}
	return requests, replies
}

// Close ends the watch.
func (w *ARPWatch) Close() error {
	err := w.file.Close()
	w.done.Wait()
	return err
}
