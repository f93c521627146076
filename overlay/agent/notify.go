package agent

import (
	"net"
	"os"
)

// notifySystemd tells the service manager about a change of state (sd_notify(3)); without one it does
// nothing.
func notifySystemd(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
