// Package etcd runs etcd members: the real server, embedded in this binary, each as a process on a machine
// of its own. So kill -9, SIGSTOP and a cut cable have their real effect.
//
// A member's data is on its machine's disk (/var/lib/etcd), which is a tmpfs. It is not fsynced.
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
	"github.com/nemesh/nemesh/harness/sandbox"
)

const (
	// ClientPort is the TCP port at which members answer clients.
	ClientPort = 2379
	peerPort   = 2380
	dataDir    = "/var/lib/etcd"
	// readyWithin is how long a member may take to start. On two busy cores it took at most a tenth of this.
	readyWithin = 20 * time.Second
)

// Options describe a member.
type Options struct {
	Machine *node.Machine
	// Binary is the path of an etcd server, 3.4 or newer. Empty means the embedded one.
	Binary string
	// V2 switches on the v2 API of that server (--enable-v2). 3.4 and 3.5 have it.
	V2 bool
	// LogLevel is the server's: debug, info, warn (default), error.
	LogLevel string
	// Authority, if set, switches on TLS for clients, who need a certificate of this authority. The member's
	// own certificate must be on its machine (Authority.Equip).
	Authority *Authority
}

// Member is one etcd server. Its methods may be called from several goroutines.
type Member struct {
	opts Options
	all  []*Member // of its cluster; nil when it is alone

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
func (m *Member) Endpoint() string {
	if m.opts.Authority != nil {
		return "https://" + m.host(ClientPort)
	}
	return "http://" + m.host(ClientPort)
}

// Secure reports whether the member speaks TLS to its clients.
func (m *Member) Secure() bool { return m.opts.Authority != nil }

// Authority returns the authority that signs the certificates of the member and its clients; nil without
// TLS.
func (m *Member) Authority() *Authority { return m.opts.Authority }

func (m *Member) peerURL() string { return "http://" + m.host(peerPort) }

// host returns the member's address with a port.
func (m *Member) host(port int) string {
	return net.JoinHostPort(m.opts.Machine.Addr().String(), fmt.Sprint(port))
}

// Start starts the server with the data that it has, if any, and returns when it answers a linearizable
// read. If the server ends before that, the error has its last lines. Start does nothing for a server that
// runs already: a second one could not have its port, and the first would answer for it.
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

// command is how the server is started: the embedded one, or Options.Binary with the same settings.
func (m *Member) command() (node.Command, error) {
	name := m.opts.Machine.Name()
	var cluster []string
	for _, o := range m.Members() {
		cluster = append(cluster, o.opts.Machine.Name()+"="+o.peerURL())
	}
	c := serverConfig{
		Name: name, Dir: dataDir, ClientURL: m.Endpoint(), PeerURL: m.peerURL(),
		Cluster: strings.Join(cluster, ","), LogLevel: m.opts.LogLevel,
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
	self := sandbox.PartCommand(part, string(config))
	// One processor is enough for a few agents. It halves what the scheduler spends on waking threads.
	env := append(os.Environ(), "GOMAXPROCS=1")
	return node.Command{Name: "etcd", Path: self.Path, Argv0: part, Args: self.Args[1:], Env: env}, nil
}

func (m *Member) waitReady(ctx context.Context, process *node.Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	client, err := m.client(ctx, []*Member{m})
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

// Client returns a client of all members of the cluster. It connects from the members' own machines, so the
// harness reaches etcd whatever faults are injected. The caller closes it.
func (m *Member) Client(ctx context.Context) (*clientv3.Client, error) {
	return m.client(ctx, m.Members())
}

func (m *Member) client(ctx context.Context, members []*Member) (*clientv3.Client, error) {
	machines := map[string]*node.Machine{}
	config := clientv3.Config{Logger: zap.NewNop(), Context: context.WithoutCancel(ctx)}
	for _, o := range members {
		machines[o.host(ClientPort)] = o.opts.Machine
		config.Endpoints = append(config.Endpoints, o.Endpoint())
	}
	dial := func(ctx context.Context, addr string) (conn net.Conn, err error) {
		machine, ok := machines[addr]
		if !ok {
			return nil, fmt.Errorf("%s is no member's address", addr)
		}
		err = machine.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			return err
		})
		return conn, err
	}
	config.DialOptions = []grpc.DialOption{
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: fastBackoff, MinConnectTimeout: time.Second}),
	}
	if m.opts.Authority != nil {
		var err error
		if config.TLS, err = m.opts.Authority.rootTLS(); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(config)
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

// Running reports whether the server's process exists. A paused one does.
func (m *Member) Running() bool {
	p := m.Process()
	return p != nil && p.Running()
}

// Stop sends SIGTERM, as an operator would, and waits until the server has ended.
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

// Pause sends SIGSTOP and returns when every thread of the server has stopped. Its connections stay open and
// nothing answers, until Resume. A server that is not running is not an error.
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

// Defragment frees the disk space of compacted revisions. The server does not answer meanwhile.
func (m *Member) Defragment(ctx context.Context) error {
	client, err := m.client(ctx, []*Member{m})
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
