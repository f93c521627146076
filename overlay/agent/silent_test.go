package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/nemesh/nemesh/overlay/lease"
)

// plainEtcd runs etcd without TLS and returns where it listens.
func plainEtcd(tb testing.TB, port string) string {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.UnsafeNoFsync = tb.TempDir(), "panic", true
	client := url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:1" + port}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	e, err := embed.StartEtcd(cfg)
	must(tb, err)
	tb.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return client.Host
}

// endpoint passes connections on to etcd until it is silenced: then they stay open, what is sent is taken,
// and nothing comes back, as from a server that was stopped (SIGSTOP).
type endpoint struct {
	url    string
	silent chan struct{}
}

func newEndpoint(tb testing.TB, to string) *endpoint {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	e := &endpoint{url: "http://" + l.Addr().String(), silent: make(chan struct{})}
	var mu sync.Mutex
	var open []net.Conn
	tb.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				return
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			go e.pass(client, server)
			go e.pass(server, client)
		}
	}()
	return e
}

// pass copies until an end closes; once silenced, what is read goes nowhere.
func (e *endpoint) pass(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-e.silent:
		default:
			if n > 0 {
				_, _ = to.Write(buffer[:n])
			}
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// TestEndpointThatGoesSilentIsNoticedWithDefaultTimers silences endpoints that the agent is connected to.
// With one left, what changes in etcd must be heard within ten seconds, whichever the watch was on; with
// none left, that must be known as soon.
func TestEndpointThatGoesSilentIsNoticedWithDefaultTimers(t *testing.T) {
	const promise = 10 * time.Second
	address := plainEtcd(t, "2391")
	direct, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address}, DialTimeout: promise})
	must(t, err)
	t.Cleanup(func() { _ = direct.Close() })
	for name, which := range map[string][]int{"first": {0}, "second": {1}, "both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := ParseOptions(nil, func(string) (string, bool) { return "", false }, io.Discard)
			must(t, err)
			both := []*endpoint{newEndpoint(t, address), newEndpoint(t, address)}
			o.EtcdEndpoints, o.EtcdPrefix = []string{both[0].url, both[1].url}, "/"+name
			client, err := dialEtcd(o)
			must(t, err)
			defer client.Close()
			ctx, stop := context.WithCancel(t.Context())
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			watcher := lease.NewWatcher(lease.NewStore(client, o.EtcdPrefix, log), o.EtcdCheck, o.EtcdTimeout)
			views, done := make(chan lease.View, 100), make(chan struct{})
			go func() {
				watcher.Run(ctx, func(v lease.View) { views <- v })
				close(done)
			}()
			defer func() { stop(); <-done }()
			hear := func(config string) time.Duration {
				t.Helper()
				began := time.Now()
				_, err := direct.Put(ctx, o.EtcdPrefix+"/config", config)
				must(t, err)
				late := time.After(promise)
				for {
					select {
					case v := <-views:
						if string(v.Config) == config {
							return time.Since(began)
						}
					case <-late:
						t.Fatalf("%s was not heard of within %s", config, promise)
					}
				}
			}
			hear("first") // the watch stands
			for _, i := range which {
				close(both[i].silent)
			}
			if len(which) == 1 {
				for i := range 3 { // the client takes its endpoints in turn, so one good answer proves nothing
					t.Logf("heard after %s", hear(fmt.Sprint("again", i)))
				}
				return
			}
			began := time.Now()
			for _, failed := watcher.Seen(); failed == nil; _, failed = watcher.Seen() {
				if time.Since(began) > promise {
					t.Fatalf("not noticed within %s", promise)
				}
				<-time.After(10 * time.Millisecond)
			}
			t.Logf("noticed after %s", time.Since(began))
			s := &status{opts: o, seen: watcher.Seen, subnet: "10.5.1.0/24", written: true}
			if err := s.unready(); err != nil {
				t.Errorf("unready at once: %v", err)
			}
			s.opts.EtcdUnseen = time.Second // shorter than the silence
			if err := s.unready(); err == nil || !strings.Contains(err.Error(), "etcd has not answered for") {
				t.Errorf("unready: %v", err)
			}
		})
	}
}
