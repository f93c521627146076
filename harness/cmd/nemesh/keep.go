package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nemesh/nemesh/harness/enter"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/suite"
)

// keepGrace is what Ginkgo gives a scenario after its time has run out, when worlds are kept: a person's
// time.
const keepGrace = "240h"

// keeper holds the worlds of scenarios that failed (`nemesh run --keep`) until the first signal.
type keeper struct {
	listener net.Listener
	shown    chan suite.Kept

	mu       sync.Mutex
	held     []net.Conn
	released bool
}

// newKeeper listens for suites, at a place in the sandbox.
func newKeeper() (*keeper, error) {
	l, err := net.Listen("unix", filepath.Join(sandbox.Dir, "keep"))
	if err != nil {
		return nil, fmt.Errorf("prepare to keep a world: %w", err)
	}
	k := &keeper{listener: l, shown: make(chan suite.Kept, 64)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go k.serve(conn)
		}
	}()
	return k, nil
}

// env tells the suite of the keeper. A nil keeper keeps nothing.
func (k *keeper) env() []string {
	if k == nil {
		return nil
	}
	return []string{suite.KeepEnv + "=" + k.listener.Addr().String()}
}

// news gives the worlds that are kept; never anything for a nil keeper.
func (k *keeper) news() <-chan suite.Kept {
	if k == nil {
		return nil
	}
	return k.shown
}

func (k *keeper) serve(conn net.Conn) {
	var what suite.Kept
	if json.NewDecoder(conn).Decode(&what) != nil {
		conn.Close()
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if what.World == "" {
		_ = json.NewEncoder(conn).Encode(len(k.held) == 0 && !k.released)
		conn.Close()
		return
	}
	if k.released {
		conn.Close()
		return
	}
	k.held = append(k.held, conn)
	k.shown <- what
}

// release lets every kept world go, and keeps none from now on. It tells whether there was any.
func (k *keeper) release() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, conn := range k.held {
		conn.Close()
	}
	any := len(k.held) > 0
	k.held, k.released = nil, k.released || any
	return any
}

// context returns one that ends by a signal, except the one that lets kept worlds go.
func (k *keeper) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if k == nil {
		return context.WithCancel(ctx)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, endings...)
	mine, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		for {
			select {
			case <-mine.Done():
				return
			case <-signals:
				if !k.release() {
					cancel()
				}
			}
		}
	}()
	return mine, func() {
		signal.Stop(signals)
		cancel()
		k.listener.Close()
	}
}

// keptText says what is kept, why, and how to enter it.
func keptText(k suite.Kept, self string, worlds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nFAIL %s\n  at %s\n", k.Scenario, k.Location)
	for line := range strings.Lines(strings.TrimSpace(k.Message)) {
		fmt.Fprintf(&b, "    %s\n", strings.TrimRight(line, "\n"))
	}
	if len(k.Active) > 0 {
		fmt.Fprintf(&b, "  broken: %s\n", strings.Join(k.Active, ", "))
	}
	fmt.Fprintf(
		&b,
		"  Its world %s stands as it was, and no further scenario is started. In another terminal:\n",
		k.World,
	)
	world := ""
	if worlds > 1 {
		world = "--world " + k.World + " "
	}
	for _, n := range k.Nodes {
		fmt.Fprintf(&b, "    %s enter %s%s\n", self, world, n)
	}
	b.WriteString("  Ctrl-C here tears it down and ends the run.\n")
	return b.String()
}

// typed is how a user would call this program from the working directory.
func typed() string {
	self, err := os.Executable()
	if err != nil {
		return "nemesh"
	}
	if dir, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(dir, self); err == nil && !strings.HasPrefix(short, "..") {
			return short
		}
	}
	return self
}

// worlds counts those in this sandbox.
func worlds() int {
	all, err := enter.Find()
	if err != nil {
		return 0
	}
	return len(all)
}
