// Package enter runs a command on a node of a running world: a shell, ip, ss or tcpdump.
//
// The program that built a world is the server. It listens on a Unix socket in the world's folder. It starts
// the command on the machine that the client names, with the client's stdin, stdout and stderr. No process
// is needed on the machine, so one whose agent was killed can be entered too. The command belongs to the
// sandbox and ends with the world.
//
// The sandbox has a /run of its own. From outside, the socket is reached through /proc/<pid>/root. The
// kernel allows that to the user who started the sandbox and to root (ptrace(2), "Ptrace access mode
// checking").
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

// Socket is the name of the server's socket in the folder of a world.
const Socket = "enter.sock"

// World describes a running world: its id, nodes and socket.
type World struct {
	// ID is the world's id in the record. Scenario is the scenario that uses the world now.
	ID       string `json:"id"`
	Scenario string `json:"scenario"`
	// Nodes are the names of the world's machines, etcd's included.
	Nodes []string `json:"nodes"`
	// socket is the path at which the server is reached.
	socket string
}

// request is a line from the client. The first line asks for a command on a node, and three descriptors come
// with it; without a node it asks for the world's description. Each later line is a signal to pass on.
type request struct {
	Node   string   `json:"node,omitempty"`
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	TTY    bool     `json:"tty,omitempty"`
	Signal int      `json:"signal,omitempty"`
}

// response is the server's one line: the world, or how the command ended.
type response struct {
	World *World `json:"world,omitempty"`
	Exit  int    `json:"exit"`
	Error string `json:"error,omitempty"`
}

// Server accepts clients for one world until it is closed.
type Server struct {
	listener *net.UnixListener
	world    func() World
	machine  func(name string) (*node.Machine, error)
	done     sync.WaitGroup

	mu    sync.Mutex
	open  map[*net.UnixConn]bool
	ended bool
}

// Listen starts a server on a socket at a path, which must not exist. world describes the world; machine
// finds one of its machines by name. Both are called from several goroutines.
func Listen(
	path string,
	world func() World,
	machine func(name string) (*node.Machine, error),
) (*Server, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for nemesh enter: %w", err)
	}
	s := &Server{listener: l, world: world, machine: machine, open: map[*net.UnixConn]bool{}}
	s.done.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if s.admit(conn) {
				s.done.Go(func() { s.serve(conn) })
			}
		}
	})
	return s, nil
}

// admit adds a connection, unless the server is closed.
func (s *Server) admit(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = conn.Close()
		return false
	}
	s.open[conn] = true
	return true
}

// Close kills every command that the server has started and waits for it. A nil server is not an error.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	err := s.listener.Close()
	s.mu.Lock()
	s.ended = true
	for conn := range s.open {
		_ = conn.CloseRead() // a reader sees the end of the stream, and the response can still be sent
	}
	s.mu.Unlock()
	s.done.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the socket of nemesh enter: %w", err)
	}
	return nil
}

// serve handles one connection.
func (s *Server) serve(conn *net.UnixConn) {
	defer func() {
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	q, files, err := receive(conn)
	if err != nil {
		return
	}
	var r response
	if q.Node == "" {
		w := s.world()
		r.World = &w
	} else {
		r = s.run(conn, q, files)
	}
	closeAll(files)
	_ = json.NewEncoder(conn).Encode(r) // an error means that the client has gone
}

// run starts the command of a request, passes signals on and waits for its end. When the client goes, the
// command and its children are killed.
func (s *Server) run(conn *net.UnixConn, q request, files []*os.File) response {
	m, err := s.machine(q.Node)
	if err == nil && len(files) != 3 {
		err = fmt.Errorf("%d descriptors came with the command, not 3", len(files))
	}
	if err != nil {
		return response{Error: err.Error()}
	}
	// The shell searches PATH, on the machine.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$@"`, "nemesh"}, q.Args...)...)
	cmd.Env, cmd.Dir = environment(q), "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: q.TTY}
	if err := m.Do(cmd.Start); err != nil {
		return response{Error: err.Error()}
	}
	closeAll(files) // so that a terminal ends with the command
	ended := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		lines := json.NewDecoder(bufio.NewReader(conn))
		for {
			var next request
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
		return response{Exit: 128 + int(status.Signal())}
	}
	return response{Exit: status.ExitStatus()}
}

// sbin are the folders of ip, ss and tcpdump. They are often missing from an ordinary user's PATH.
const sbin = "/usr/local/sbin:/usr/sbin:/sbin"

// environment is the client's, with a PATH that finds the tools and a prompt that names the node.
func environment(q request) []string {
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

// receive reads the first request and the descriptors that came with it.
func receive(conn *net.UnixConn) (request, []*os.File, error) {
	var q request
	line := make([]byte, 0, 4096)
	var files []*os.File
	for !strings.HasSuffix(string(line), "\n") {
		part, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(3*4))
		n, oobn, _, _, err := conn.ReadMsgUnix(part, oob)
		if err != nil || n == 0 {
			closeAll(files)
			return q, nil, errors.Join(errors.New("the request was cut off"), err)
		}
		line = append(line, part[:n]...)
		files = append(files, rights(oob[:oobn])...)
	}
	if err := json.Unmarshal(line, &q); err != nil {
		closeAll(files)
		return q, nil, fmt.Errorf("read the request: %w", err)
	}
	return q, files, nil
}

// rights returns the descriptors in a message (unix(7), SCM_RIGHTS).
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
