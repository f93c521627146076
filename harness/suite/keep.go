package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
)

// KeepEnv names the environment variable with the socket of the keeper, which decides how long the world of
// a scenario that failed is kept. Without it worlds are torn down at once.
const KeepEnv = "NEMESH_KEEP"

// Kept tells the keeper of a world that stands as it was when its scenario failed. The world is torn down
// when the keeper closes the connection. Without a World it asks whether scenarios may still start, and the
// keeper answers with a line, true or false.
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

// keepFor bounds how long a world is kept. Ginkgo allows such a callback its grace period unless another
// limit is given, and has none that is unlimited.
const keepFor = 10 * 365 * 24 * time.Hour

// keep holds the worlds of a failed spec until the keeper lets them go or Ginkgo is interrupted. Those of a
// spec that was interrupted are not held: whoever interrupted it wants it to end.
func (s *Suite) keep(ctx ginkgo.SpecContext) {
	spec := ginkgo.CurrentSpecReport()
	if os.Getenv(KeepEnv) == "" || interrupted(spec) {
		return
	}
	began := time.Now()
	s.mu.Lock()
	message := strings.Join(append(s.died[:len(s.died):len(s.died)], spec.Failure.Message), "\n")
	open := slices.DeleteFunc(slices.Clone(s.clusters), (*Cluster).Closed)
	s.mu.Unlock()
	var held []net.Conn
	for _, c := range open {
		conn := keeper(Kept{
			Scenario: spec.FullText(), Location: location(spec), Message: message, World: c.ID(),
			Nodes: c.Machines(), Active: c.Summary().Active,
		})
		if conn != nil {
			held = append(held, conn)
		}
	}
	for _, conn := range held {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		_, _ = io.Copy(io.Discard, conn) // until it is closed
		stop()
		_ = conn.Close()
	}
	s.mu.Lock()
	s.kept = time.Since(began)
	s.mu.Unlock()
}

// keepAtRest is keep for a spec that has failed only when its world was judged at rest.
func (s *Suite) keepAtRest(ctx ginkgo.SpecContext) {
	s.mu.Lock()
	kept := s.kept > 0
	s.mu.Unlock()
	if ginkgo.CurrentSpecReport().Failed() && !kept {
		s.keep(ctx)
	}
}

// keeper connects to the keeper and tells it of k. It returns nil if there is no keeper.
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
