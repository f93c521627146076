package follow

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

const (
	// overhead is what an echo is longer than its data: the IP header without options and that of ICMP.
	overhead = 20 + 8
	// smallest is the least length of an echo whose size nobody asked for.
	smallest = 64
)

// sender is a raw ICMP socket in the namespace of the packet's source.
type sender struct {
	conn *net.IPConn
	mark [markLength]byte
	done sync.WaitGroup
}

// newMark makes a mark that no other packet has.
func newMark() (mark [markLength]byte) {
	_, _ = rand.Read(mark[:]) // never fails (crypto/rand)
	return mark
}

// openSender opens the socket and calls answered when the reply has come to it. With whole set the packet
// must not be fragmented, whatever the kernel believes of the path's MTU.
func openSender(handle netns.NsHandle, mark [markLength]byte, whole bool, answered func()) (*sender, error) {
	s := &sender{mark: mark}
	err := ns.Do(handle, func() error {
		conn, err := net.ListenIP("ip4:icmp", nil)
		if err != nil {
			return err
		}
		s.conn = conn
		var only ipv4.ICMPFilter
		only.SetAll(true)
		only.Accept(ipv4.ICMPTypeEchoReply)
		if err := ipv4.NewPacketConn(conn).SetICMPFilter(&only); err != nil || !whole {
			return err
		}
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		})
		return errors.Join(err, set)
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket to send the marked echo: %w", err)
	}
	s.done.Go(func() { s.receive(answered) })
	return s, nil
}

// send sends the echo. A refusal by the kernel is part of what is found out, so it is returned as text.
func (s *sender) send(to netip.Addr, length int) (refusal string, err error) {
	data := make([]byte, max(length, overhead+markLength)-overhead)
	copy(data, s.mark[:])
	message := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{
		ID: int(s.mark[6])<<8 | int(s.mark[7]), Seq: 1, Data: data,
	}}
	raw, err := message.Marshal(nil)
	if err != nil {
		return "", fmt.Errorf("build the marked echo: %w", err)
	}
	_, err = s.conn.WriteToIP(raw, &net.IPAddr{IP: to.AsSlice()})
	var number syscall.Errno
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &number):
		return number.Error(), nil
	default:
		return "", fmt.Errorf("send the marked echo: %w", err)
	}
}

func (s *sender) receive(answered func()) {
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := s.conn.ReadFromIP(buffer)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier packet
		}
		message, err := icmp.ParseMessage(1, buffer[:n])
		if err != nil {
			continue
		}
		if body, ok := message.Body.(*icmp.Echo); ok && bytes.HasPrefix(body.Data, s.mark[:]) {
			answered()
		}
	}
}

func (s *sender) close() error {
	err := s.conn.Close()
	s.done.Wait()
	return err
}
