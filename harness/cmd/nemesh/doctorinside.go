package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/preflight"
	"github.com/nemesh/nemesh/harness/sandbox"
)

// roomNeeded is what worlds that run side by side may take on the sandbox's tmpfs, most of it etcd's
// log, of which each member sets 64 MiB aside.
const roomNeeded = 512 << 20

// insideSandbox looks at what only shows in a sandbox and writes the findings as JSON.
func insideSandbox(w io.Writer) error {
	sandbox.Enter()
	var all []finding
	for _, f := range preflight.All() {
		all = append(all, tried(f, f.Try(ns.Scratch)))
	}
	all = append(all, dropReasons(), room())
	return json.NewEncoder(w).Encode(all)
}

// tried says how trying a feature of the kernel went.
func tried(f preflight.Feature, err error) finding {
	found := finding{
		What:     f.Name,
		OK:       err == nil,
		Has:      f.Needed,
		Required: f.Required,
		Without:  f.Needed,
		Fix:      f.Remedy,
	}
	if err != nil {
		found.Has = err.Error()
		if f.Name != "netem" {
			found.Without = "what needs it is skipped: " + f.Needed
		}
	}
	return found
}

// dropReasons tries to read the kernel's reasons for freeing packets, as following a packet does.
func dropReasons() finding {
	f := finding{
		What: "drop-reasons", Without: "a lost packet is followed by captures and counters alone",
		Fix: "sudo nemesh run: tracefs is root's",
	}
	err := readReasons()
	f.OK = err == nil
	f.Has = "tracepoint skb:kfree_skb"
	if err != nil {
		f.Has = err.Error()
	}
	if startedByRoot() && err != nil {
		f.Fix = "Linux 5.17 or newer, with CONFIG_FTRACE"
	}
	return f
}

func readReasons() (err error) {
	dir, err := os.MkdirTemp("", "tracefs-")
	if err != nil {
		return fmt.Errorf("make a folder for tracefs: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount tracefs, which only root may: %w", err)
	}
	defer func() { err = errors.Join(unix.Unmount(dir, 0), err) }()
	raw, err := os.ReadFile(filepath.Join(dir, "events/skb/kfree_skb/format"))
	if err != nil {
		return fmt.Errorf("read the tracepoint skb:kfree_skb: %w", err)
	}
	if !strings.Contains(string(raw), "reason") {
		return errors.New("this kernel gives no reasons; they came with Linux 5.17")
	}
	return nil
}

// room looks at the tmpfs on which worlds are laid out.
func room() finding {
	f := finding{
		What: "room", Without: "worlds that run side by side may find their disk full",
		Fix: sandbox.SizeEnv + "=1g nemesh run, or nemesh run --procs 1",
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(sandbox.Dir, &fs); err != nil {
		f.Has = err.Error()
		return f
	}
	free := fs.Bavail * uint64(fs.Bsize)
	f.OK = free >= roomNeeded
	f.Has = fmt.Sprintf("%d MiB on the sandbox's tmpfs", free>>20)
	return f
}
