// Package ns makes network namespaces and runs functions inside them.
//
// Only a descriptor keeps a namespace alive. When its last descriptor, process and socket are gone, the
// kernel frees it with all its links, routes and rules. A function runs inside a namespace on a new thread
// that is never given back to the runtime: if it could not return to its namespace, the next goroutine on
// that thread would run in the wrong one.
package ns

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// New makes a network namespace. It has a loopback that is down, and nothing else.
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

// Do runs fn on a thread inside a network namespace and returns its error. Sockets that fn opens belong to
// that namespace; they may be used from any thread afterwards.
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

// OnThread runs fn on a new thread that ends with fn, so fn may leave the thread in any namespace.
//
// It never uses the main thread, which cannot end before the process does. The runtime would keep the main
// thread in fn's namespace for good, and /proc/self would show that namespace from then on.
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
