// Package etcd runs the control plane's store: the real server, embedded, re-executed as a process on a
// machine of its own, so that kill -9, SIGSTOP and a cut cable do to it what they do in life.
//
// Its data is on the machine's disk (/var/lib/etcd), which is a tmpfs, and is not fsynced.
package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/reexec"
)

const (
	dataDir    = "/var/lib/etcd"
	clientPort = 2379
	peerPort   = 2380
	// readyWithin bounds a member's start; on two busy cores it takes a tenth of it at most.
	readyWithin = 20 * time.Second
)

// Options describe a member.
type Options struct {
	Machine *node.Machine
	// Binary is an etcd server to run, 3.4 or newer; empty for the one that is built in.
	Binary string
	// V2 asks that server for the v2 API as well (--enable-v2), which 3.4 and 3.5 have.
	V2 bool
	// LogLevel is the server's: debug, info, warn (default), error.
	LogLevel string
}

// Member is one etcd server. Its methods may be called from several goroutines.
type Member struct {
	opts Options

	starting sync.Mutex // held by Start, so that two do not both find no server
	mu       sync.Mutex
	process  *node.Process
}

// New prepares a member; Start runs it.
func New(opts Options) *Member {
	if opts.LogLevel == "" {
		opts.LogLevel = "warn"
	}
	return &Member{opts: opts}
}

// Machine returns the machine the member runs on.
func (m *Member) Machine() *node.Machine { return m.opts.Machine }

// Endpoint returns the URL at which clients reach the member.
func (m *Member) Endpoint() string { return m.url(clientPort) }

func (m *Member) url(port int) string {
	return fmt.Sprintf("http://%s", net.JoinHostPort(m.opts.Machine.Addr().String(), fmt.Sprint(port)))
}

// Start runs the server on the data it left, if any, and returns when it answers a linearizable read. A
// server that ends before that is an error with its last lines. One that runs already is left as it is: a
// second could not have its port, and the first would answer for it.
func (m *Member) Start(ctx context.Context) error {
	m.starting.Lock()
	defer m.starting.Unlock()
	if m.Running() {
		return m.waitReady(ctx, m.Process())
	}
	command, err := m.command()
	if err != nil {
		return err
	}
	process, err := m.opts.Machine.Start(ctx, command)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.process = process
	m.mu.Unlock()
	return m.waitReady(ctx, process)
}

// command is how the server is started: the built-in one, or another's with the same settings.
func (m *Member) command() (node.Command, error) {
	name := m.opts.Machine.Name()
	c := serverConfig{
		Name: name, Dir: dataDir, ClientURL: m.url(clientPort), PeerURL: m.url(peerPort),
		Cluster: name + "=" + m.url(peerPort), LogLevel: m.opts.LogLevel,
	}
	if m.opts.Binary != "" {
		flags := c.flags()
		if m.opts.V2 {
			flags = append(flags, "--enable-v2=true")
		}
		return node.Command{Name: "etcd", Path: m.opts.Binary, Args: flags}, nil
	}
	config, err := json.Marshal(c)
	if err != nil {
		return node.Command{}, fmt.Errorf("configure etcd: %w", err)
	}
	self := reexec.Command(part, string(config))
	return node.Command{Name: "etcd", Path: self.Path, Argv0: part, Args: self.Args[1:]}, nil
}

func (m *Member) waitReady(ctx context.Context, process *node.Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	client, err := m.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	read := make(chan error, 1)
	go func() {
		_, err := client.Get(ctx, "ready")
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			return fmt.Errorf("etcd is not ready after %s: %w; its last lines:\n%s", readyWithin, err,
				strings.Join(process.Tail(10), "\n"))
		}
		return nil
	case <-process.Exited():
		return process.Unexpected("before it was ready")
	}
}

// Client returns a client whose connections are made on the member's own machine, so that the harness
// reaches etcd whatever it has cut. The caller closes it.
func (m *Member) Client(ctx context.Context) (*clientv3.Client, error) {
	dial := func(ctx context.Context, addr string) (conn net.Conn, err error) {
		err = m.opts.Machine.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			return err
		})
		return conn, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.Endpoint()}, Logger: zap.NewNop(), Context: context.WithoutCancel(ctx),
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(dial),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: fastBackoff, MinConnectTimeout: time.Second}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open a client of etcd: %w", err)
	}
	return client, nil
}

// Process returns the server's process; nil before the first start.
func (m *Member) Process() *node.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// Running reports whether the server's process is there, paused or not.
func (m *Member) Running() bool {
	p := m.Process()
	return p != nil && p.Running()
}

// Stop ends the server as an operator would (SIGTERM) and waits until it is gone.
func (m *Member) Stop(ctx context.Context) error {
	if p := m.Process(); p != nil {
		return p.Terminate(ctx, 10*time.Second)
	}
	return nil
}

// Kill ends the server at once (SIGKILL).
func (m *Member) Kill(ctx context.Context) error {
	if p := m.Process(); p != nil {
		return p.Kill(ctx)
	}
	return nil
}

// Pause stops the server as it is (SIGSTOP) and returns when it has stopped: its connections stay open and
// nothing answers. Resume lets it go on. A server that is not running is not an error.
func (m *Member) Pause() error {
	p := m.Process()
	if p == nil {
		return nil
	}
	if err := p.Pause(); err != nil {
		return err
	}
	return waitStopped(p)
}

// Resume lets a paused server go on.
func (m *Member) Resume() error {
	if p := m.Process(); p != nil {
		return p.Resume()
	}
	return nil
}

// Defragment gives the space of discarded revisions back to the disk. The server does not answer meanwhile.
func (m *Member) Defragment(ctx context.Context) error {
	client, err := m.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Defragment(ctx, m.Endpoint()); err != nil {
		return fmt.Errorf("defragment etcd: %w", err)
	}
	return nil
}

// Wipe deletes the data of a server that is not running.
func (m *Member) Wipe() error {
	if m.Running() {
		return errors.New("wipe etcd: it is running; stop it first")
	}
	if err := os.RemoveAll(m.opts.Machine.Path(dataDir)); err != nil {
		return fmt.Errorf("wipe etcd: %w", err)
	}
	return nil
}
