package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

// payload is the length of an echo's payload: the mesh's nonce, the pair and the number. The id and the
// sequence of the ICMP header are too short, and other programs may use the same.
const payload = 16

// wanted are the ICMP types that a socket receives (RFC 792).
var wanted = []ipv4.ICMPType{
	ipv4.ICMPTypeEchoReply, ipv4.ICMPTypeDestinationUnreachable, ipv4.ICMPTypeTimeExceeded,
	ipv4.ICMPTypeParameterProblem,
}

// wanted6 are those of IPv6 (RFC 4443).
var wanted6 = []ipv6.ICMPType{
	ipv6.ICMPTypeEchoReply, ipv6.ICMPTypeDestinationUnreachable, ipv6.ICMPTypePacketTooBig,
	ipv6.ICMPTypeTimeExceeded, ipv6.ICMPTypeParameterProblem,
}

// endpoint is an endpoint with its socket.
type endpoint struct {
	name string
	node string
	addr netip.Addr
	conn *net.IPConn
	raw  syscall.RawConn

	reading         sync.Mutex // held from taking a packet off the socket until it is noted
	buffer, control []byte
}

// open opens a raw ICMP socket in the endpoint's namespace.
func open(e Endpoint) (*endpoint, error) {
	network := "ip4:icmp"
	if e.Addr.Is6() {
		network = "ip6:ipv6-icmp"
	}
	end := &endpoint{name: e.Name, node: e.Node, addr: e.Addr}
	end.buffer, end.control = make([]byte, 1<<16), make([]byte, 128)
	err := ns.Do(e.NS, func() error {
		conn, err := net.ListenIP(network, nil)
		if err != nil {
			return err
		}
		end.conn = conn
		if end.raw, err = conn.SyscallConn(); err != nil {
			return err
		}
		return configure(conn, end.raw, e.Addr.Is6())
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket for pings at %s: %w", e.Name, err)
	}
	return end, nil
}

// configure sets the socket's ICMP filter, receive timestamps and buffer size.
func configure(conn *net.IPConn, raw syscall.RawConn, v6 bool) error {
	if err := filter(conn, v6); err != nil {
		return err
	}
	var set error
	err := raw.Control(func(fd uintptr) {
		set = StampReceived(int(fd))
		// The forced size needs more than this user may have; what is granted otherwise is enough for thousands
		// of echoes.
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
		}
	})
	return errors.Join(err, set)
}

// filter has the kernel deliver only the wanted ICMP types.
func filter(conn *net.IPConn, v6 bool) error {
	if v6 {
		var f ipv6.ICMPFilter
		f.SetAll(true)
		for _, t := range wanted6 {
			f.Accept(t)
		}
		return ipv6.NewPacketConn(conn).SetICMPFilter(&f)
	}
	var f ipv4.ICMPFilter
	f.SetAll(true)
	for _, t := range wanted {
		f.Accept(t)
	}
	return ipv4.NewPacketConn(conn).SetICMPFilter(&f)
}

// echo sends one echo request.
func (e *endpoint) echo(nonce uint64, pair, seq uint32, to netip.Addr) error {
	data := make([]byte, payload)
	binary.BigEndian.PutUint64(data, nonce)
	binary.BigEndian.PutUint32(data[8:], pair)
	binary.BigEndian.PutUint32(data[12:], seq)
	var kind icmp.Type = ipv4.ICMPTypeEcho
	if to.Is6() {
		kind = ipv6.ICMPTypeEchoRequest // the kernel fills in the checksum (RFC 3542, 3.1)
	}
	message := icmp.Message{Type: kind, Body: &icmp.Echo{
		ID: int(pair & 0xffff), Seq: int(seq & 0xffff), Data: data,
	}}
	raw, err := message.Marshal(nil)
	if err != nil {
		return err
	}
	_, err = e.conn.WriteToIP(raw, &net.IPAddr{IP: to.AsSlice()})
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Err // the reason alone, so that equal ones are counted together
	}
	return err
}

// receive reads until the socket is closed.
func (e *endpoint) receive(m *Mesh) {
	_ = e.raw.Read(func(fd uintptr) bool {
		e.drain(int(fd), m)
		return false // wait for more
	})
}

// catchUp reads what has arrived by now.
func (e *endpoint) catchUp(m *Mesh) {
	_ = e.raw.Control(func(fd uintptr) { e.drain(int(fd), m) }) // fails for a closed one, which has nothing
}

// drain reads until the socket is empty, and counts what it reads.
func (e *endpoint) drain(fd int, m *Mesh) {
	e.reading.Lock()
	defer e.reading.Unlock()
	for {
		n, cn, _, from, err := unix.Recvmsg(fd, e.buffer, e.control, unix.MSG_DONTWAIT)
		switch {
		case err == nil:
			e.take(m, e.buffer[:n], from, Monotonic(ReceivedAt(e.control[:cn])))
		case errors.Is(err, unix.EAGAIN):
			return
		} // any other is one of the socket's errors, which reading has cleared
	}
}

// take counts a packet: an answer or an error.
func (e *endpoint) take(m *Mesh, packet []byte, from unix.Sockaddr, at time.Time) {
	message, reporter, ok := parse(packet, from)
	if !ok {
		return
	}
	switch body := message.Body.(type) {
	case *icmp.Echo:
		if len(body.Data) >= payload {
			m.replied(binary.BigEndian.Uint64(body.Data), binary.BigEndian.Uint32(body.Data[8:]),
				binary.BigEndian.Uint32(body.Data[12:]), at)
		}
	case *icmp.DstUnreach:
		e.failed(m, message, reporter, body.Data, at)
	case *icmp.PacketTooBig:
		e.failed(m, message, reporter, body.Data, at)
	case *icmp.TimeExceeded:
		e.failed(m, message, reporter, body.Data, at)
	case *icmp.ParamProb:
		e.failed(m, message, reporter, body.Data, at)
	}
}

// parse reads the ICMP message of a packet. It first removes the IP header, which only IPv4 sockets deliver.
func parse(packet []byte, from unix.Sockaddr) (*icmp.Message, netip.Addr, bool) {
	if from6, ok := from.(*unix.SockaddrInet6); ok {
		message, err := icmp.ParseMessage(ipv6.ICMPTypeEchoReply.Protocol(), packet)
		return message, netip.AddrFrom16(from6.Addr), err == nil
	}
	from4, ok := from.(*unix.SockaddrInet4)
	if !ok {
		return nil, netip.Addr{}, false
	}
	header, err := icmp.ParseIPv4Header(packet)
	if err != nil || header.Len > len(packet) {
		return nil, netip.Addr{}, false
	}
	message, err := icmp.ParseMessage(1, packet[header.Len:])
	if err != nil {
		return nil, netip.Addr{}, false
	}
	return message, netip.AddrFrom4(from4.Addr), true
}

// failed reports an ICMP error. original is the packet that could not be delivered.
func (e *endpoint) failed(
	m *Mesh,
	message *icmp.Message,
	reporter netip.Addr,
	original []byte,
	at time.Time,
) {
	var source, destination netip.Addr
	var kind int
	if of, ok := message.Type.(ipv6.ICMPType); ok {
		header, err := ipv6.ParseHeader(original)
		if err != nil {
			return
		}
		kind = int(of)
		source, _ = netip.AddrFromSlice(header.Src)
		destination, _ = netip.AddrFromSlice(header.Dst)
	} else {
		header, err := icmp.ParseIPv4Header(original)
		if err != nil {
			return
		}
		of, _ := message.Type.(ipv4.ICMPType)
		kind = int(of)
		source, _ = netip.AddrFromSlice(header.Src)
		destination, _ = netip.AddrFromSlice(header.Dst)
	}
	m.reported(ICMPError{
		At: e.name, Reporter: reporter, Type: kind, Code: message.Code,
		Source: source.Unmap(), Destination: destination.Unmap(), First: at, Last: at,
	})
}
