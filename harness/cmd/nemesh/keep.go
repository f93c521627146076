package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nemesh/nemesh/harness/enter"
	"github.com/nemesh/nemesh/harness/suite"
)

// keeper holds the worlds of scenarios that failed (`nemesh run --keep`) until the first signal. A nil
// keeper keeps nothing.
type keeper struct {
	listener net.Listener
	shown    chan suite.Kept

	mu       sync.Mutex
	held     []net.Conn // of worlds that are kept
	worlds   []string   // their ids
	released bool       // worlds were kept, and are not any more
}

// newKeeper listens for suites on a socket at a path.
func newKeeper(path string) (*keeper, error) {
	l, err := net.Listen("unix", path)
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

// env tells the suite where the keeper is.
func (k *keeper) env() []string {
	if k == nil {
		return nil
	}
	return []string{suite.KeepEnv + "=" + k.listener.Addr().String()}
}

// news returns the channel on which worlds arrive that are kept from now on.
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
	k.held, k.worlds = append(k.held, conn), append(k.worlds, what.World)
	k.shown <- what
}

// release lets every kept world go, and keeps none from then on. It reports whether there was any.
func (k *keeper) release() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, conn := range k.held {
		conn.Close()
	}
	any := len(k.held) > 0
	k.held, k.worlds, k.released = nil, nil, k.released || any
	return any
}

// ever reports whether a world is kept or was kept.
func (k *keeper) ever() bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held) > 0 || k.released
}

// keeps returns the ids of the worlds that are kept now.
func (k *keeper) keeps() []string {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.worlds)
}

// errLate means that the time of the run was up.
var errLate = errors.New("the run's time is up")

// context returns a context that ends by a signal or, with the cause errLate, when the time of the run is
// up. A signal that lets kept worlds go does not end it, and neither does the time once a world is kept:
// the scenarios that still run then have limits of their own.
func (k *keeper) context(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, endings...)
	mine, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	late := time.NewTimer(within)
	go func() {
		for {
			select {
			case <-mine.Done():
				return
			case <-late.C:
				if !k.ever() {
					cancel(errLate)
				}
			case <-signals:
				if !k.release() {
					cancel(nil)
				}
			}
		}
	}()
	return mine, func() {
		signal.Stop(signals)
		late.Stop()
		cancel(nil)
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
