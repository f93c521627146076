package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/suite"
)

// connect connects to the keeper as a suite does.
func connect(t *testing.T, k *keeper, what suite.Kept) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", k.listener.Addr().String())
	if err == nil {
		err = json.NewEncoder(conn).Encode(what)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// starts asks the keeper whether a scenario may start.
func starts(t *testing.T, k *keeper) bool {
	t.Helper()
	var may bool
	if err := json.NewDecoder(connect(t, k, suite.Kept{})).Decode(&may); err != nil {
		t.Fatal(err)
	}
	return may
}

func newTestKeeper(t *testing.T, within time.Duration) (*keeper, context.Context) {
	t.Helper()
	k, err := newKeeper(filepath.Join(t.TempDir(), "keep"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := k.context(t.Context(), within)
	t.Cleanup(stop)
	return k, ctx
}

func TestKeeperEndsALateRun(t *testing.T) {
	k, ctx := newTestKeeper(t, time.Millisecond)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errLate) || k.ever() {
		t.Errorf("ended by %v", context.Cause(ctx))
	}
}

// A kept world stands when the time of the run is up. The first signal lets it go, and the next one ends
// the run.
func TestKeeperHoldsAWorld(t *testing.T) {
	const within = 100 * time.Millisecond
	k, ctx := newTestKeeper(t, within)
	if !starts(t, k) {
		t.Error("the first scenario may not start")
	}
	world := connect(t, k, suite.Kept{World: "42"})
	if got := <-k.news(); got.World != "42" {
		t.Errorf("%+v", got)
	}
	if starts(t, k) || !slices.Equal(k.keeps(), []string{"42"}) {
		t.Errorf("a scenario may start beside the kept world %q", k.keeps())
	}
	select {
	case <-ctx.Done():
		t.Fatal("the time of the run ended a kept world")
	case <-time.After(3 * within):
	}
	interrupt(t)
	if _, err := world.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the world was not let go: %v", err)
	}
	if ctx.Err() != nil || starts(t, k) || !k.ever() || len(k.keeps()) > 0 {
		t.Errorf("the signal that let the world go ended the run: %v", context.Cause(ctx))
	}
	interrupt(t)
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), errLate) {
		t.Error("an interrupted run is taken for a late one")
	}
}

func interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}
