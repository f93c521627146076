package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/onsi/ginkgo/v2"
)

// KeepEnv names the environment variable with the socket of whoever wants to keep the world of a
// scenario that failed. Without it worlds are torn down at once.
const KeepEnv = "NEMESH_KEEP"

// Kept is what the keeper is told: a world that stands as it was when its scenario failed. It is torn
// down when the keeper closes the connection. One without a World only asks whether scenarios may still
// start: the keeper answers with a line, true or false.
type Kept struct {
	Scenario string   `json:"scenario,omitempty"`
	Location string   `json:"location,omitempty"`
	Message  string   `json:"message,omitempty"`
	World    string   `json:"world,omitempty"`
	Nodes    []string `json:"nodes,omitempty"`
	// Active are the faults that are not healed.
	Active []string `json:"active,omitempty"`
}

// notStarted is why specs are skipped while a world is kept.
const notStarted = "not started, since the world of a scenario that failed is kept"

// skipWhileKept skips a spec, before it has built anything, while a world is kept.
func skipWhileKept() {
	conn := keeper(Kept{})
	if conn == nil {
		return
	}
	defer conn.Close()
	var start bool
	if err := json.NewDecoder(conn).Decode(&start); err == nil && !start {
		ginkgo.Skip(notStarted)
	}
}

// keep holds the world of a failed spec until the keeper lets it go.
func (s *Suite) keep(c *Cluster) {
	if os.Getenv(KeepEnv) == "" {
		return
	}
	spec := ginkgo.CurrentSpecReport()
	s.mu.Lock()
	message := strings.Join(append(s.died[:len(s.died):len(s.died)], spec.Failure.Message), "\n")
	s.mu.Unlock()
	conn := keeper(Kept{
		Scenario: spec.FullText(), Location: location(spec), Message: message, World: c.ID(), Nodes: c.Machines(),
		Active: c.Summary().Active,
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(io.Discard, conn) // until it is closed there
}

// keeper tells the keeper; nil where there is none.
func keeper(k Kept) net.Conn {
	path := os.Getenv(KeepEnv)
	if path == "" {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
	if err == nil {
		err = json.NewEncoder(conn).Encode(k)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		fmt.Fprintf(ginkgo.GinkgoWriter, "the world cannot be kept: %v\n", err)
		return nil
	}
	return conn
}
