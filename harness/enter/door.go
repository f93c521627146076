// Package enter lets a person onto a node of a running world: a shell, ip, ss or tcpdump.
//
// A world has a door, which is a socket in its folder, and the program that built the world answers
// there: it starts a command on the machine that is asked for, on the descriptors that come with the
// question. Nothing has to run on a machine for that, so one whose agent was killed can be entered too,
// and the command ends with the world, since it belongs to the sandbox.
//
// The sandbox's /run is its own. From outside it is seen through /proc/<pid>/root only, which the kernel
// shows to the user who started the sandbox and to root (ptrace(2), "Ptrace access mode checking"), so
// nobody else finds the door.
package enter

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/node"
)

// File is the name of the door in the folder of a world.
const File = "door"

// World is what a door says of its world.
type World struct {
	// ID is that of the world in the record, Scenario the one that uses it now.
	ID       string `json:"id"`
	Scenario string `json:"scenario"`
	// Nodes are the names of its machines, etcd's among them.
	Nodes []string `json:"nodes"`
}

// question is the first line of a connection: without a node, what world it is. A command comes with
// three descriptors. Every later line is a signal to pass on.
type question struct {
	Node   string   `json:"node,omitempty"`
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	TTY    bool     `json:"tty,omitempty"`
	Signal int      `json:"signal,omitempty"`
}

// answer is a line back: the world, or how the command ended.
type answer struct {
	World *World `json:"world,omitempty"`
	Exit  int    `json:"exit"`
	Error string `json:"error,omitempty"`
}

// Door answers for a world until it is closed.
type Door struct {
	listener *net.UnixListener
	world    func() World
	machine  func(name string) (*node.Machine, error)
	done     sync.WaitGroup

	mu    sync.Mutex
	open  map[*net.UnixConn]bool
	ended bool
}

// Open makes the door at a path, which must not exist. Both functions are called from several
// goroutines.
func Open(path string, world func() World, machine func(name string) (*node.Machine, error)) (*Door, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("open the world's door: %w", err)
	}
	d := &Door{listener: l, world: world, machine: machine, open: map[*net.UnixConn]bool{}}
	d.done.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if d.admit(conn) {
				d.done.Go(func() { d.serve(conn) })
			}
		}
	})
	return d, nil
}

// admit remembers a connection, unless the door is closed.
func (d *Door) admit(conn *net.UnixConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		_ = conn.Close()
		return false
	}
	d.open[conn] = true
	return true
}

// Close ends every command that came in by the door and waits for it. A nil door is not an error.
func (d *Door) Close() error {
	if d == nil {
		return nil
	}
	err := d.listener.Close()
	d.mu.Lock()
	d.ended = true
	for conn := range d.open {
		_ = conn.CloseRead() // what waits for a line sees the end, and an answer can still be given
	}
	d.mu.Unlock()
	d.done.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the world's door: %w", err)
	}
	return nil
}

// serve answers one connection.
func (d *Door) serve(conn *net.UnixConn) {
	defer func() {
		d.mu.Lock()
		delete(d.open, conn)
		d.mu.Unlock()
		_ = conn.Close()
	}()
	q, files, err := receive(conn)
	if err != nil {
		return
	}
	var a answer
	if q.Node == "" {
		w := d.world()
		a.World = &w
	} else {
		a = d.run(conn, q, files)
	}
	closeAll(files)
	_ = json.NewEncoder(conn).Encode(a) // who asked has gone when this fails
}

// run starts the command of a question, passes signals on and waits for its end. When the asker goes,
// the command and its children are ended.
func (d *Door) run(conn *net.UnixConn, q question, files []*os.File) answer {
	m, err := d.machine(q.Node)
	if err == nil && len(files) != 3 {
		err = fmt.Errorf("%d descriptors came with the command, not 3", len(files))
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	// The shell searches PATH, on the machine.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$@"`, "nemesh"}, q.Args...)...)
	cmd.Env, cmd.Dir = environment(q), "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: q.TTY}
	if err := m.Do(cmd.Start); err != nil {
		return answer{Error: err.Error()}
	}
	closeAll(files) // so that a terminal ends with the command
	ended := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		lines := json.NewDecoder(bufio.NewReader(conn))
		for {
			var next question
			if lines.Decode(&next) != nil {
				break
			}
			_ = syscall.Kill(-cmd.Process.Pid, syscall.Signal(next.Signal))
		}
		select {
		case <-ended:
		default:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}()
	_ = cmd.Wait()
	close(ended)
	_ = conn.CloseRead()
	<-gone
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return answer{Exit: 128 + int(status.Signal())}
	}
	return answer{Exit: status.ExitStatus()}
}

// sbin are the folders of ip, ss and tcpdump, which ordinary users often have not in their PATH.
const sbin = "/usr/local/sbin:/usr/sbin:/sbin"

// environment is the asker's, with a PATH that finds the tools and a prompt that says where one is.
func environment(q question) []string {
	path := os.Getenv("PATH")
	env := make([]string, 0, len(q.Env)+4)
	for _, e := range q.Env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
			continue
		}
		if !strings.HasPrefix(e, "PS1=") && !strings.HasPrefix(e, "TMPDIR=") {
			env = append(env, e)
		}
	}
	return append(
		env,
		"PATH="+strings.TrimPrefix(path+":"+sbin, ":"),
		"PS1="+q.Node+" # ",
		"NEMESH_NODE="+q.Node,
	)
}

// receive reads the first line and the descriptors with it.
func receive(conn *net.UnixConn) (question, []*os.File, error) {
	var q question
	line := make([]byte, 0, 4096)
	var files []*os.File
	for !strings.HasSuffix(string(line), "\n") {
		part, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(3*4))
		n, oobn, _, _, err := conn.ReadMsgUnix(part, oob)
		if err != nil || n == 0 {
			closeAll(files)
			return q, nil, errors.Join(errors.New("the question was not finished"), err)
		}
		line = append(line, part[:n]...)
		files = append(files, rights(oob[:oobn])...)
	}
	if err := json.Unmarshal(line, &q); err != nil {
		closeAll(files)
		return q, nil, fmt.Errorf("read the question: %w", err)
	}
	return q, files, nil
}

// rights are the descriptors in a message (unix(7), SCM_RIGHTS).
func rights(oob []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close() // a second close is an error that changes nothing
	}
}
