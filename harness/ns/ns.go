// Package ns makes network namespaces and runs functions inside them.
//
// A namespace is pinned by its descriptor alone; when the last descriptor, process and socket in it are
// gone, the kernel frees it with all its links, routes and rules. Work inside one happens on a fresh thread
// that is never given back to the runtime: a thread that could not return to its namespace would poison
// whatever goroutine ran on it next.
package ns

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// New makes a network namespace in which nothing but an idle loopback exists.
func New() (netns.NsHandle, error) {
	handle := netns.None()
	err := OnThread(func() error {
		var err error
		handle, err = netns.New()
		return err
	})
	if err != nil {
		return netns.None(), fmt.Errorf("make a network namespace: %w", err)
	}
	return handle, nil
}

// Do runs fn on a thread inside ns and returns its error. Sockets that fn opens stay in ns and may be used
// from anywhere afterwards (they belong to the namespace they were made in).
func Do(handle netns.NsHandle, fn func() error) error {
	return OnThread(func() error {
		if err := netns.Set(handle); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return fn()
	})
}

// Scratch runs fn in a new network namespace, which is gone afterwards with everything that fn made in it.
func Scratch(fn func() error) error {
	return OnThread(func() error { // the runtime ends the thread, and the namespace goes with it
		handle, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		defer handle.Close()
		return fn()
	})
}

// OnThread runs fn on a thread of its own, which ends with it, so that fn may leave it in any namespace.
//
// The main thread is the one that must not be taken: it cannot end before the process does. The runtime
// parks it for good instead, with the namespace it is in, and /proc/self shows that from then on.
func OnThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			result <- OnThread(fn) // on another one, since this one is held meanwhile
			return
		}
		result <- fn()
	}()
	return <-result
}
