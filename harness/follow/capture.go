package follow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/probe"
)

// snapLength is how much of a frame is kept, and maxFrames how many frames of one namespace: a packet that
// loops is seen some hundred times.
const (
	snapLength = 2048
	maxFrames  = 4096
)

// capture is a packet socket for all devices of one namespace.
type capture struct {
	place string
	file  *os.File
	names map[int]string
	done  sync.WaitGroup
}

// openCapture opens a packet socket in a namespace and calls each with what it reads, until it is closed.
// One socket for all devices sees also where the packet should not be.
func openCapture(
	place string,
	handle netns.NsHandle,
	mark [markLength]byte,
	each func(frame),
) (*capture, error) {
	c := &capture{place: place, names: map[int]string{}}
	err := ns.Do(handle, func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Flags&net.FlagLoopback == 0 {
				c.names[l.Index] = l.Name
			}
		}
		// The socket starts with no protocol, so that nothing is queued before the filter is there.
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		c.file = os.NewFile(uintptr(fd), "packets of "+place)
		if err := attach(fd, mark); err != nil {
			return errors.Join(err, c.file.Close())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listen for packets in %s: %w", place, err)
	}
	c.done.Go(func() { c.read(each) })
	return c, nil
}

// attach puts the filter on a socket, has the kernel stamp its packets, and starts it.
func attach(fd int, mark [markLength]byte) error {
	program, err := bpf.Assemble(filter(mark))
	if err != nil {
		return err
	}
	raw := make([]unix.SockFilter, len(program))
	for i, p := range program {
		raw[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]})
	if err != nil {
		return err
	}
	if err := probe.StampReceived(fd); err != nil {
		return err
	}
	// Only a socket for all protocols sees what goes out (net/core/dev.c, dev_queue_xmit_nit).
	protocol := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol})
}

// filter lets through ARP, echoes with the mark, ICMP errors, and both of the latter inside VXLAN. Which
// error quotes the mark is found out later: errors are few. Offsets are those of Ethernet without tags.
func filter(mark [markLength]byte) []bpf.Instruction {
	const (
		ether  = 14
		header = 20                     // of IPv4 without options, as the kernel's tunnels write it
		vxlan  = ether + header + 8 + 8 // the inner Ethernet header
		inner  = vxlan + ether          // the inner IP header
		accept = 1 << 16
	)
	word := binary.BigEndian.Uint32(mark[:4])
	return []bpf.Instruction{
		/*  0 */ bpf.LoadExtension{Num: bpf.ExtProto},
		/*  1 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: 26},
		/*  2 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 24},
		/*  3 */ bpf.LoadAbsolute{Off: ether + 9, Size: 1},
		/*  4 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 8},
		/*  5 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMP, SkipFalse: 21},
		/*  6 */ bpf.LoadMemShift{Off: ether},
		/*  7 */ bpf.LoadIndirect{Off: ether, Size: 1},
		/*  8 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 8, SkipTrue: 2},
		/*  9 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		/* 10 */ bpf.Jump{Skip: 12}, // an error, perhaps
		/* 11 */ bpf.LoadIndirect{Off: ether + 8, Size: 4},
		/* 12 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: word, SkipTrue: 15, SkipFalse: 14},
		/* 13 */ bpf.LoadAbsolute{Off: vxlan + 12, Size: 2},
		/* 14 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 12},
		/* 15 */ bpf.LoadAbsolute{Off: inner + 9, Size: 1},
		/* 16 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMP, SkipFalse: 10},
		/* 17 */ bpf.LoadAbsolute{Off: inner + header, Size: 1},
		/* 18 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 8, SkipTrue: 2},
		/* 19 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		/* 20 */ bpf.Jump{Skip: 2}, // an error, perhaps
		/* 21 */ bpf.LoadAbsolute{Off: inner + header + 8, Size: 4},
		/* 22 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: word, SkipTrue: 5, SkipFalse: 4},
		/* 23 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 3, SkipTrue: 4},
		/* 24 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 5, SkipTrue: 3},
		/* 25 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 11, SkipTrue: 2},
		/* 26 */ bpf.JumpIf{Cond: bpf.JumpEqual, Val: 12, SkipTrue: 1},
		/* 27 */ bpf.RetConstant{Val: 0},
		/* 28 */ bpf.RetConstant{Val: accept},
	}
}

// read reads until the socket is closed.
func (c *capture) read(each func(frame)) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return
	}
	buffer, control := make([]byte, snapLength), make([]byte, 128)
	for seen := 0; seen < maxFrames; seen++ {
		var n, cn int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, cn, _, from, failed = unix.Recvmsg(int(fd), buffer, control, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // closed, or read to its end
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if failed != nil || !ok {
			continue
		}
		name, ok := c.names[link.Ifindex]
		if !ok {
			continue // the loopback, which shows every packet twice
		}
		each(frame{
			place:     c.place,
			device:    name,
			at:        probe.ReceivedAt(control[:cn]),
			data:      append([]byte(nil), buffer[:n]...),
			out:       link.Pkttype == unix.PACKET_OUTGOING,
			otherHost: link.Pkttype == unix.PACKET_OTHERHOST,
		})
	}
}

// close reads what is queued, and closes the socket.
func (c *capture) close() error {
	err := c.file.SetReadDeadline(time.Now().Add(settle))
	c.done.Wait()
	return errors.Join(err, c.file.Close())
}
