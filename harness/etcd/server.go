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

// walSegment is how much etcd allocates for its log at once, in bytes, and once more in advance. Its
// default, 64 MB (server/storage/wal, SegmentSizeBytes), is memory here, which the kernel clears at every
// start.
const walSegment = 1 << 20

func init() { sandbox.RegisterPart(part, serverMain) }

// serverConfig is what the harness tells the process that it starts as a member.
type serverConfig struct {
	Name, Dir          string
	ClientURL, PeerURL string
	Cluster            string
	LogLevel           string
}

// serverMain is a process with one etcd server in it.
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

// flags are the settings of embedded for an etcd of its own. The heartbeat and the election are those that
// etcd 3.4 takes at least; there is no flag against fsync in all versions, and on a tmpfs it costs little.
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

// tickMs is the heartbeat, in milliseconds. Several members on few processors miss each other's for a tenth
// of a second.
func (c serverConfig) tickMs() uint {
	if strings.Contains(c.Cluster, ",") {
		return 50
	}
	return 20
}

// electionMs is after how long without a heartbeat a member calls an election, in milliseconds: for a lone
// one the least that etcd takes, five ticks, so that it wakes up seldom and yet elects itself soon.
func (c serverConfig) electionMs() uint {
	if strings.Contains(c.Cluster, ",") {
		return 10 * c.tickMs()
	}
	return 5 * c.tickMs()
}

// secure reports whether clients are to speak TLS.
func (c serverConfig) secure() bool { return strings.HasPrefix(c.ClientURL, "https:") }

// embedded turns the configuration into the server's: on a tmpfs, without fsync, with ticks five times as
// fast as the default so that a lone member elects itself in a tenth of a second. The shortest lease etcd
// grants is one and a half election time-outs, rounded up (server/lease/lessor.go, minLeaseTTL), which
// keeps 1 s leases.
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
