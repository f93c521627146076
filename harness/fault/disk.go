package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
)

// RunFull fills up the part of a node's /run in which the agent leaves its subnet file: a small tmpfs with
// what is there is laid over it and filled to the last byte. The heal takes it away, and keeps what the
// agent has changed.
type RunFull struct{ Node string }

// Name implements Fault.
func (f RunFull) Name() string { return "/run of " + f.Node + " full" }

// Identity implements Fault.
func (f RunFull) Identity() Identity { return at("run-full", f.Node) }

// Inject implements Fault. The proof is a write on the node that fails with ENOSPC.
func (f RunFull) Inject(_ context.Context, w *Injection) error {
	dir := filepath.Dir(w.SubnetFile())
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	boot := machine.Boot()
	mounted := false
	w.OnHeal(func(context.Context) error {
		if !mounted || !machine.On() || machine.Boot() != boot {
			return nil
		}
		err := uncover(machine, dir)
		mounted = err != nil
		return err
	})
	err = machine.Do(func() error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		kept, err := readAll(dir)
		if err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0755"); err != nil {
			return fmt.Errorf("lay a small tmpfs over %s: %w", dir, err)
		}
		mounted = true
		if err := writeAll(dir, kept); err != nil {
			return err
		}
		err = os.WriteFile(filepath.Join(dir, filler), make([]byte, 1<<20), 0o600)
		if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("%s takes a megabyte (%w)", dir, err)
		}
		err = os.WriteFile(filepath.Join(dir, filler+"2"), []byte("more"), 0o600)
		if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("%s takes more (%w)", dir, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}

// filler is the name of the file that takes the room.
const filler = "filler"

// uncover takes the tmpfs over a folder away and writes what it held, but for the fillers, under it.
func uncover(machine *node.Machine, dir string) error {
	var kept map[string][]byte
	err := machine.Do(func() (err error) {
		if kept, err = readAll(dir); err != nil {
			return err
		}
		return unix.Unmount(dir, unix.MNT_DETACH)
	})
	if err != nil {
		return fmt.Errorf("uncover %s on %s: %w", dir, machine.Name(), err)
	}
	for name, data := range kept {
		if strings.HasPrefix(name, filler) || len(data) == 0 { // cut short for want of room
			delete(kept, name)
		}
	}
	return writeAll(machine.Path(dir), kept)
}

// readAll reads the regular files of a folder.
func readAll(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func writeAll(dir string, files map[string][]byte) error {
	var errs []error
	for name, data := range files {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return errors.Join(errs...)
}

// StateReadOnly makes the folder in which a node's agent keeps its state read-only, as a kernel does with a
// disk that fails; the heal makes it writable.
type StateReadOnly struct{ Node string }

// Name implements Fault.
func (f StateReadOnly) Name() string { return "state folder of " + f.Node + " read-only" }

// Identity implements Fault.
func (f StateReadOnly) Identity() Identity { return at("state-read-only", f.Node) }

// Available implements Limited.
func (StateReadOnly) Available(w World) error { return keepsState(w) }

func keepsState(w World) error {
	if w.StateDir() == "" {
		return errors.New("the agent keeps no state: try another agent")
	}
	return nil
}

// Inject implements Fault. The proof is a write on the node that fails with EROFS.
func (f StateReadOnly) Inject(_ context.Context, w *Injection) error {
	if err := keepsState(w); err != nil {
		return err
	}
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	dir := w.StateDir()
	boot := machine.Boot()
	mounted := false
	w.OnHeal(func(context.Context) error {
		if !mounted || !machine.On() || machine.Boot() != boot {
			return nil
		}
		err := machine.Do(func() error { return unix.Unmount(dir, unix.MNT_DETACH) })
		mounted = err != nil
		return err
	})
	err = machine.Do(func() error {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s over itself: %w", dir, err)
		}
		mounted = true
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			return err
		}
		// Flags that the mount had may not be dropped by a user without rights over it (mount_namespaces(7)).
		kept := uintptr(s.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|kept, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", dir, err)
		}
		err := os.WriteFile(filepath.Join(dir, "proof"), nil, 0o600)
		if !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("%s is written to (%w)", dir, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return nil
}

// FilesTruncated cuts files on a node to nothing, as a crash between creating and writing does. The heal
// gives them back what they held, unless somebody has written or deleted them since.
type FilesTruncated struct {
	// ID is its row's, or one of its own; Custom if it is not set.
	ID   string
	Node string
	// What the files are, for the name, and where: files, or folders with all that is in them.
	What  string
	Paths []string
}

// SubnetFileTruncated cuts the file that the agent leaves for CNI.
func SubnetFileTruncated(w World, node string) FilesTruncated {
	return FilesTruncated{"subnet-file-truncated", node, "subnet file", []string{w.SubnetFile()}}
}

// StateTruncated cuts all that the agent keeps.
func StateTruncated(w World, node string) FilesTruncated {
	return FilesTruncated{"state-truncated", node, "agent's state", []string{w.StateDir()}}
}

// CNICacheTruncated cuts what the CNI plugin and libcni keep of each pod.
func CNICacheTruncated(node string) FilesTruncated {
	return FilesTruncated{
		"cni-cache-truncated", node, "CNI cache",
		[]string{"/var/lib/cni/flannel", "/var/lib/cni/results"},
	}
}

// Name implements Fault.
func (f FilesTruncated) Name() string { return f.What + " of " + f.Node + " truncated" }

// Identity implements Fault.
func (f FilesTruncated) Identity() Identity {
	i := at(f.ID, f.Node)
	if _, ok := Find(f.ID); !ok {
		i = i.with("paths", strings.Join(f.Paths, " "))
	}
	i.Component = ComponentDisk
	return i
}

// Inject implements Fault. The proof is that there was something in the files and is not any more.
func (f FilesTruncated) Inject(_ context.Context, w *Injection) error {
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	held := map[string][]byte{}
	boot := machine.Boot()
	w.OnHeal(func(context.Context) error {
		var errs []error
		for path, data := range held {
			info, err := os.Stat(path)
			if err != nil || info.Size() > 0 || machine.Boot() != boot && strings.HasPrefix(f.Paths[0], "/run/") {
				continue
			}
			errs = append(errs, os.WriteFile(path, data, info.Mode().Perm()))
		}
		return errors.Join(errs...)
	})
	for _, top := range f.Paths {
		err := filepath.WalkDir(machine.Path(top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil || len(data) == 0 {
				return err
			}
			held[path] = data
			return os.Truncate(path, 0)
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: truncate %s on %s: %w", ErrNotProven, top, f.Node, err)
		}
	}
	if len(held) == 0 {
		return fmt.Errorf("%w: there was nothing in %s on %s", ErrNotProven, strings.Join(f.Paths, ", "), f.Node)
	}
	return nil
}

// StateLost deletes all that a node's agent keeps over restarts, as a disk that was replaced has lost it.
// Nothing brings it back.
type StateLost struct{ Node string }

// Name implements Fault.
func (f StateLost) Name() string { return "agent's state of " + f.Node + " lost" }

// Identity implements Fault.
func (f StateLost) Identity() Identity { return at("state-lost", f.Node) }

// Available implements Limited.
func (StateLost) Available(w World) error { return keepsState(w) }

// Inject implements Fault. The proof is that there was something and is nothing.
func (f StateLost) Inject(_ context.Context, w *Injection) error {
	if err := keepsState(w); err != nil {
		return err
	}
	machine, err := w.Machine(f.Node)
	if err != nil {
		return err
	}
	dir := machine.Path(w.StateDir())
	files, err := readAll(dir)
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%w: there is nothing in %s on %s (%w)", ErrNotProven, w.StateDir(), f.Node, err)
	}
	for name := range files {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("%w: %w", ErrNotProven, err)
		}
	}
	return nil
}
