package etcd

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/nemesh/nemesh/harness/sandbox"
)

const part = "nemesh-etcd"

// walSegment is the size of a segment of etcd's log, in bytes. etcd allocates one segment, and one more in
// advance. With the default, 64 MB (server/storage/wal, SegmentSizeBytes), the kernel would have to clear
// that much memory at every start, since the disk is a tmpfs.
const walSegment = 1 << 20

func init() { sandbox.RegisterPart(part, serverMain) }

// serverConfig is the configuration that the harness passes to a member's process.
type serverConfig struct {
	Name, Dir          string
	ClientURL, PeerURL string
	Cluster            string
	LogLevel           string
}

// serverMain runs one etcd server. It is the main function of a member's process.
func serverMain() int {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	return 0
}

func serve(raw string) error {
	var c serverConfig
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return fmt.Errorf("read the member's configuration: %w", err)
	}
	cfg, err := c.embedded()
	if err != nil {
		return err
	}
	wal.SegmentSizeBytes = walSegment
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	select {
	case <-signals:
		server.Close()
		return nil
	case err := <-server.Err():
		server.Close()
		return fmt.Errorf("the server ended: %w", err)
	}
}

// flags are the settings of embedded as command-line flags, for Options.Binary. Heartbeat and election
// time-out are the least that etcd 3.4 takes. fsync stays on, since not every version has a flag for it; on
// a tmpfs it costs little.
func (c serverConfig) flags() []string {
	flags := []string{
		"--name=" + c.Name, "--data-dir=" + c.Dir, "--initial-cluster=" + c.Cluster,
		"--listen-client-urls=" + c.ClientURL, "--advertise-client-urls=" + c.ClientURL,
		"--listen-peer-urls=" + c.PeerURL, "--initial-advertise-peer-urls=" + c.PeerURL,
		fmt.Sprintf("--heartbeat-interval=%d", c.tickMs()), fmt.Sprintf("--election-timeout=%d", c.electionMs()),
		"--log-level=" + c.LogLevel, "--logger=zap",
	}
	if c.secure() {
		flags = append(flags, "--cert-file="+CertFile, "--key-file="+KeyFile, "--trusted-ca-file="+CAFile,
			"--client-cert-auth")
	}
	return flags
}

// tickMs is the heartbeat interval, in milliseconds. It is longer with several members: on few processors
// their heartbeats can be late by a tenth of a second.
func (c serverConfig) tickMs() uint {
	if strings.Contains(c.Cluster, ",") {
		return 50
	}
	return 20
}

// electionMs is the election time-out, in milliseconds. A single member has the least that etcd takes, five
// ticks: then it elects itself soon and wakes up seldom.
func (c serverConfig) electionMs() uint {
	if strings.Contains(c.Cluster, ",") {
		return 10 * c.tickMs()
	}
	return 5 * c.tickMs()
}

// secure reports whether clients use TLS.
func (c serverConfig) secure() bool { return strings.HasPrefix(c.ClientURL, "https:") }

// embedded is the configuration of the embedded server: without fsync, and with ticks five times as fast as
// the default, so that a single member elects itself in a tenth of a second. Leases of 1 s are possible: the
// shortest TTL is one and a half election time-outs, rounded up (server/lease/lessor.go, minLeaseTTL).
func (c serverConfig) embedded() (*embed.Config, error) {
	client, err := url.Parse(c.ClientURL)
	if err != nil {
		return nil, fmt.Errorf("client URL: %w", err)
	}
	peer, err := url.Parse(c.PeerURL)
	if err != nil {
		return nil, fmt.Errorf("peer URL: %w", err)
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = c.Name, c.Dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.InitialCluster = c.Cluster
	if c.secure() {
		cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = CertFile, KeyFile
		cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = CAFile, true
	}
	cfg.TickMs, cfg.ElectionMs = c.tickMs(), c.electionMs()
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = c.LogLevel
	cfg.LogOutputs = []string{"stderr"}
	return cfg, nil
}
