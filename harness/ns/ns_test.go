package ns_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/sandbox"
)

func init() { runtime.LockOSThread() } // the main goroutine stays on the main thread until TestMain

func TestMain(m *testing.M) {
	sandbox.Enter()
	runtime.UnlockOSThread()
	if err := fromMainThread(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// fromMainThread calls Do where the main thread is the first to be asked: with one thread at a time running
// Go code, the caller's own takes the next goroutine when the caller waits.
func fromMainThread() error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	want, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	handle, err := ns.New()
	if err != nil {
		return err
	}
	defer handle.Close()
	for range 100 {
		err := ns.Do(handle, func() error {
			if unix.Gettid() == unix.Getpid() {
				return fmt.Errorf("fn runs on the main thread, which cannot end")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if got, err := os.Readlink("/proc/self/ns/net"); err != nil || got != want {
		return fmt.Errorf("the main thread is in %s, was in %s (%w)", got, want, err)
	}
	return nil
}

func TestNamespacesAreEmpty(t *testing.T) {
	handle, err := ns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	var own, other unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &own); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstat(int(handle), &other); err != nil || other.Ino == own.Ino {
		t.Errorf("the new namespace is the caller's own (%v)", err)
	}
}
