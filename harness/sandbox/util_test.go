package sandbox_test

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

func notify(signals chan<- os.Signal) { signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM) }

// lines reads the lines of a process.
type lines struct{ next chan string }

func newLines(r io.Reader) lines {
	l := lines{make(chan string)}
	go func() {
		defer close(l.next)
		for scan := bufio.NewScanner(r); scan.Scan(); {
			l.next <- scan.Text()
		}
	}()
	return l
}

func (l lines) expect(tb testing.TB, want string) {
	tb.Helper()
	select {
	case got, ok := <-l.next:
		if !ok || got != want {
			tb.Fatalf("want the line %q, got %q", want, got)
		}
	case <-time.After(10 * time.Second):
		tb.Fatalf("the line %q does not come", want)
	}
}
