package checker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/ns"
)

// Traces are the marks by which what is left of one world is told from other worlds in the same sandbox.
// They hold the world's namespaces until they are closed, since the kernel gives the number of one that is
// gone to the next.
type Traces struct {
	dir   string
	links []string
	whose map[uint64]string // by the namespace's number
	held  []int
}

// NewTraces begins the traces of a world whose files are under dir. links are those that the sandbox's own
// network namespace had before the world was built (SandboxLinks).
func NewTraces(dir string, links []string) *Traces {
	return &Traces{dir: dir, links: links, whose: map[uint64]string{}}
}

// Hold remembers an open namespace and whose it is.
func (t *Traces) Hold(whose string, fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("hold a namespace of %s: %w", whose, err)
	}
	t.held = append(t.held, own)
	var stat unix.Stat_t
	if err := unix.Fstat(own, &stat); err != nil {
		return fmt.Errorf("hold a namespace of %s: %w", whose, err)
	}
	t.whose[stat.Ino] = whose
	return nil
}

// HoldMachine remembers the namespaces of a machine that is switched on.
func (t *Traces) HoldMachine(m *node.Machine) error {
	return m.Do(func() error {
		for _, path := range []string{"/proc/thread-self/ns/net", "/proc/thread-self/ns/mnt"} {
			file, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("open a namespace of %s: %w", m.Name(), err)
			}
			defer file.Close()
			if err := t.Hold(m.Name(), int(file.Fd())); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close lets the namespaces go.
func (t *Traces) Close() {
	for _, fd := range t.held {
		_ = unix.Close(fd)
	}
	t.held = nil
}

// SandboxLinks lists the links of the network namespace of the calling program.
func SandboxLinks() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the sandbox's links: %w", err)
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	return names, nil
}

// Left lists what there still is of the world, each as words that follow "left".
func (t *Traces) Left() ([]string, error) {
	var left []string
	if _, err := os.Lstat(t.dir); err == nil {
		left = append(left, "the folder "+t.dir)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	left = append(left, t.mounts(string(mounts))...)
	processes, err := t.processes()
	if err != nil {
		return nil, err
	}
	left = append(left, processes...)
	held, err := t.open()
	if err != nil {
		return nil, err
	}
	left = append(left, held...)
	links, err := SandboxLinks()
	for _, l := range links {
		if !slices.Contains(t.links, l) {
			left = append(left, "the link "+l+" in the sandbox")
		}
	}
	return left, err
}

// mounts finds mount points in the world's folder (proc(5), mountinfo: the fifth field).
func (t *Traces) mounts(mountinfo string) (left []string) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[4] == t.dir || strings.HasPrefix(fields[4], t.dir+"/")) {
			left = append(left, "the mount "+fields[4])
		}
	}
	return left
}

// processes finds those that run in one of the world's namespaces.
func (t *Traces) processes() (left []string, err error) {
	for _, kind := range []string{"net", "mnt"} {
		files, err := ns.Links("/proc", kind)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			whose, ok := t.owner(file)
			if !ok {
				continue
			}
			dir := filepath.Dir(filepath.Dir(file))
			raw, _ := os.ReadFile(dir + "/cmdline") // it may have ended just now
			text := fmt.Sprintf("process %s of %s: %s", filepath.Base(dir), whose,
				strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " ")))
			if !slices.Contains(left, text) {
				left = append(left, text)
			}
		}
	}
	return left, nil
}

// open finds namespaces of the world that this program itself keeps alive, by a descriptor or a thread.
func (t *Traces) open() (left []string, err error) {
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil, fmt.Errorf("list what is open: %w", err)
	}
	files = slices.DeleteFunc(files, func(file string) bool {
		fd, _ := strconv.Atoi(filepath.Base(file))
		return slices.Contains(t.held, fd)
	})
	for _, kind := range []string{"net", "mnt"} {
		threads, err := ns.Links("/proc/self/task", kind)
		if err != nil {
			return nil, err
		}
		files = append(files, threads...)
	}
	for _, file := range files {
		if whose, ok := t.owner(file); ok {
			link, _ := os.Readlink(file) // it may have been closed just now
			left = append(left, fmt.Sprintf("the namespace %s of %s, held by %s", link, whose, file))
		}
	}
	return left, nil
}

// owner looks up a namespace by a link to it, such as net:[4026532008].
func (t *Traces) owner(file string) (string, bool) {
	link, err := os.Readlink(file)
	if err != nil {
		return "", false // ended meanwhile, or a zombie, which has none any more
	}
	inode, err := inodeOf(link)
	if err != nil {
		return "", false
	}
	whose, ok := t.whose[inode]
	return whose, ok
}

func inodeOf(link string) (inode uint64, err error) {
	kind, rest, ok := strings.Cut(link, ":[")
	if !ok || (kind != "net" && kind != "mnt") {
		return 0, errors.New("not a namespace")
	}
	_, err = fmt.Sscanf(rest, "%d]", &inode)
	return inode, err
}
