package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// lab is an etcd with a network, and an uplink in this namespace.
type lab struct {
	tb   testing.TB
	etcd *clientv3.Client
	url  string
	link string
}

// newLab makes one; n, a number of its own, keeps its ports and addresses from those of others.
func newLab(tb testing.TB, n int, config string) lab {
	tb.Helper()
	l := lab{tb: tb, url: "http://" + plainEtcd(tb, fmt.Sprint(2400+n)), link: fmt.Sprintf("up%d", n)}
	var err error
	l.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{l.url}, DialTimeout: 5 * time.Second})
	must(tb, err)
	tb.Cleanup(func() { _ = l.etcd.Close() })
	if config != "" {
		l.put("config", config)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: l.link}, PeerName: l.link + "far"}
	must(tb, netlink.LinkAdd(veth))
	tb.Cleanup(func() { _ = netlink.LinkDel(veth) })
	must(tb, netlink.AddrAdd(veth, &netlink.Addr{IPNet: &net.IPNet{
		IP: net.IPv4(192, 0, 2, byte(n)), Mask: net.CIDRMask(32, 32),
	}}))
	must(tb, netlink.LinkSetUp(veth))
	return l
}

func (l lab) put(key, value string) {
	l.tb.Helper()
	_, err := l.etcd.Put(l.tb.Context(), "/coreos.com/network/"+key, value)
	must(l.tb, err)
}

// options are those of an agent of its own folder in this lab.
func (l lab) options() Options {
	l.tb.Helper()
	dir := l.tb.TempDir()
	o, err := parse(nil, "--etcd-endpoints="+l.url, "--iface="+l.link, "--state-dir="+dir,
		"--subnet-file="+filepath.Join(dir, "run", "subnet.env"), "--node-name="+l.link)
	must(l.tb, err)
	return o
}

// run runs an agent until the test ends or stop is called.
func (l lab) run(o Options) (log *journal, a *Agent, stop func()) {
	l.tb.Helper()
	log = &journal{}
	a, err := New(o, slog.New(slog.NewTextHandler(log, nil)))
	must(l.tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				l.tb.Error(err)
			}
		})
	}
	l.tb.Cleanup(stop)
	return log, a, stop
}

// within waits for a condition.
func within(tb testing.TB, limit time.Duration, what string, holds func() bool) {
	tb.Helper()
	for late := time.Now().Add(limit); !holds(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(late) {
			tb.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }
