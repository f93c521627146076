// Package netspace makes network namespaces and runs functions inside them.
//
// A namespace is pinned by its descriptor alone; when the last descriptor, process and socket in it are
// gone, the kernel frees it with all its links, routes and rules. Work inside one happens on a fresh thread
// that is never given back to the runtime: a thread that could not return to its namespace would poison
// whatever goroutine ran on it next.
package netspace

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// New makes a network namespace in which nothing but an idle loopback exists.
func New() (netns.NsHandle, error) {
	handle := netns.None()
	err := onThread(func() error {
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
func Do(ns netns.NsHandle, fn func() error) error {
	return onThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return fn()
	})
}

// onThread runs fn on a thread of its own that ends with it.
func onThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		result <- fn()
	}()
	return <-result
}
