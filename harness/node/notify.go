package node

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
)

// listen gives a process that is not started yet the socket of Command.Notify, if its command wants one. The
// returned function closes the socket; it is never nil.
func (p *Process) listen(m *Machine) (func(), error) {
	if !p.command.Notify {
		return func() {}, nil
	}
	path := fmt.Sprintf("/run/notify-%s-%d", p.command.Name, m.started.Add(1))
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.Path(path), Net: "unixgram"})
	if err != nil {
		return func() {}, fmt.Errorf("listen for its readiness: %w", err)
	}
	if p.cmd.Env == nil {
		p.cmd.Env = os.Environ()
	}
	p.cmd.Env = append(slices.Clip(p.cmd.Env), "NOTIFY_SOCKET="+path)
	go func() {
		message := make([]byte, 4096)
		for {
			n, err := conn.Read(message)
			if err != nil {
				return
			}
			if slices.Contains(strings.Split(string(message[:n]), "\n"), "READY=1") {
				close(p.ready)
				return
			}
		}
	}()
	return func() {
		_ = conn.Close()
		_ = os.Remove(m.Path(path)) // gone already if the machine was switched off
	}, nil
}
