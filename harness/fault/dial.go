package fault

import (
	"context"
	"errors"
	"net"
	"syscall"

	"google.golang.org/grpc"

	"github.com/nemesh/nemesh/harness/node"
)

// discard is the port of a service that answers nothing (RFC 863); here nothing listens there.
const discard = "9"

// dialFrom has a client connect from a machine.
func dialFrom(m *node.Machine) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, to string) (c net.Conn, err error) {
			err = m.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, "tcp", to)
				return err
			})
			return c, err
		}),
	}
}

// chatter sends a datagram from one machine to another, for what is between them to show what it does to it.
func chatter(ctx context.Context, from, to *node.Machine) error { return say(ctx, from, to, 64) }

// say sends a datagram of so many bytes.
func say(ctx context.Context, from, to *node.Machine, size int) error {
	return from.Do(func() error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", net.JoinHostPort(to.Addr().String(), discard))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(make([]byte, size))
		return err
	})
}

// burst sends a hundred datagrams at once.
func burst(ctx context.Context, from, to *node.Machine) error {
	return from.Do(func() error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", net.JoinHostPort(to.Addr().String(), discard))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range 100 {
			// The refusal of the one before is reported at the next one, and is no failure to send it.
			if _, err := conn.Write(make([]byte, 1000)); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
		}
		return nil
	})
}
