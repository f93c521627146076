package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Ginkgo's parallel processes report to a server on the loopback of `ginkgo -p`. A suite inside a sandbox
// cannot reach that loopback. So the init listens on the same address inside and passes the listener to the
// outer process, which accepts connections there and dials the server in its own namespace. This works
// because a socket stays in the network namespace in which it was made.

const parallelHostFlag = "ginkgo.parallel.host="

// parallelHost finds the address of Ginkgo's parallel server among a suite's arguments.
func parallelHost(args []string) (addr string, ok bool) {
	for _, a := range args {
		if v, found := strings.CutPrefix(strings.TrimLeft(a, "-"), parallelHostFlag); found && v != "" {
			return strings.TrimPrefix(v, "http://"), true
		}
	}
	return "", false
}

func relaySockets() (outer, inner *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the relay's sockets: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "relay-outer"), os.NewFile(uintptr(fds[1]), "relay-inner"), nil
}

// openRelay listens inside on the address of the parallel server, if there is one, and passes the listener
// out.
func openRelay(socket *os.File, args []string) error {
	defer socket.Close()
	addr, ok := parallelHost(args)
	if !ok {
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("relay Ginkgo's parallel server: %w", err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("relay Ginkgo's parallel server: %w", err)
	}
	defer file.Close()
	if err := unix.Sendmsg(
		int(socket.Fd()),
		[]byte(addr),
		unix.UnixRights(int(file.Fd())),
		nil,
		0,
	); err != nil {
		return fmt.Errorf("pass the relay's listener out of the sandbox: %w", err)
	}
	return nil
}

// serveRelay takes the listener from the init and joins each connection to the real server. It returns when
// the init closes its end without sending one, or when the listener fails.
func serveRelay(socket *os.File) {
	defer socket.Close()
	listener, addr, err := receiveListener(socket)
	if err != nil {
		return
	}
	defer listener.Close()
	for {
		inside, err := listener.Accept()
		if err != nil {
			return
		}
		go join(inside, addr)
	}
}

func receiveListener(socket *os.File) (net.Listener, string, error) {
	text, rights := make([]byte, 256), make([]byte, unix.CmsgSpace(4))
	n, rn, _, _, err := unix.Recvmsg(int(socket.Fd()), text, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return nil, "", errors.Join(io.EOF, err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil || len(messages) != 1 {
		return nil, "", errors.Join(errors.New("no listener in the relay's message"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, "", errors.Join(errors.New("no descriptor in the relay's message"), err)
	}
	file := os.NewFile(uintptr(fds[0]), "relay-listener")
	defer file.Close()
	listener, err := net.FileListener(file)
	return listener, string(text[:n]), err
}

func join(inside net.Conn, addr string) {
	defer inside.Close()
	outside, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer outside.Close()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
