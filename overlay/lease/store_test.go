package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
)

const prefix = "/coreos.com/network"

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

var nextPort = 20000

// server runs etcd in this process.
func server(tb testing.TB) *clientv3.Client {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.UnsafeNoFsync = tb.TempDir(), "error", true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	client := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", nextPort)}
	peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", nextPort+1)}
	nextPort += 2
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{client.String()}, Logger: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func store(c *clientv3.Client) *lease.Store {
	return lease.NewStore(c, prefix, slog.New(slog.DiscardHandler))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func network(tb testing.TB, raw string) netconf.Config {
	tb.Helper()
	c, err := netconf.Parse([]byte(raw))
	must(tb, err)
	return c
}

// node is a node that asks for a subnet.
type node struct {
	ip     netip.Addr
	config netconf.Config
	id     int64
}

func (n node) owner() lease.Owner {
	return lease.Owner{
		Attrs: lease.Attrs{PublicIP: n.ip, BackendType: "host-gw"}, Node: n.ip.String(),
		Instance: n.ip.String(),
	}
}

func (n node) acquire(ctx context.Context, s *lease.Store, ttl time.Duration) (lease.Lease, error) {
	for {
		v, err := s.List(ctx)
		if err != nil {
			return lease.Lease{}, err
		}
		c, err := lease.Choose(v, lease.Request{
			Config: n.config, IP: n.ip, Node: n.ip.String(),
			Instance: n.ip.String(), Hold: time.Hour, Now: time.Now(), Pick: rand.IntN,
		})
		if err != nil {
			return lease.Lease{}, err
		}
		l, err := s.Acquire(ctx, c, n.owner(), ttl, n.id)
		if !errors.Is(err, lease.ErrRace) {
			return l, err
		}
	}
}

func leases(tb testing.TB, c *clientv3.Client) []clientv3.LeaseStatus {
	tb.Helper()
	resp, err := c.Leases(tb.Context())
	must(tb, err)
	return resp.Leases
}

func TestFortyAtOnceOnFortyOneSubnets(t *testing.T) {
	c := server(t)
	// SubnetMin to SubnetMax are 41 subnets.
	config := network(
		t,
		`{"Network":"10.0.0.0/16","SubnetLen":24,"SubnetMin":"10.0.1.0","SubnetMax":"10.0.41.0"}`,
	)
	var mu sync.Mutex
	var all sync.WaitGroup
	got := map[string]bool{}
	for i := range 40 {
		all.Go(func() {
			n := node{ip: netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}), config: config}
			l, err := n.acquire(t.Context(), store(c), time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if got[l.Subnet.Key()] {
				t.Errorf("%s was given away twice", l.Subnet)
			}
			got[l.Subnet.Key()] = true
		})
	}
	all.Wait()
	if n := len(leases(t, c)); n != 40 {
		t.Errorf("%d etcd leases for 40 nodes", n)
	}
}

func TestRestartKeepsTheEtcdLease(t *testing.T) {
	c := server(t)
	n := node{ip: netip.MustParseAddr("10.1.0.1"), config: network(t, `{"Network":"10.0.0.0/16"}`)}
	first, err := n.acquire(t.Context(), store(c), time.Minute)
	must(t, err)
	for range 5 {
		n.id = first.ID
		again, err := n.acquire(t.Context(), store(c), time.Minute)
		must(t, err)
		if again.Subnet != first.Subnet || again.ID != first.ID {
			t.Fatalf("first %+v, then %+v", first, again)
		}
	}
	n.id = 0 // the saved state is lost
	again, err := n.acquire(t.Context(), store(c), 2*time.Minute)
	must(t, err)
	if all := leases(t, c); again.Subnet != first.Subnet || len(all) != 1 {
		t.Fatalf("%+v, etcd leases %v", again, all)
	}
}

func TestRenewNeverOverwritesAnothersKey(t *testing.T) {
	c, ctx := server(t), t.Context()
	s := store(c)
	n := node{ip: netip.MustParseAddr("10.1.0.1"), config: network(t, `{"Network":"10.0.0.0/16"}`)}
	l, err := n.acquire(ctx, s, time.Minute)
	must(t, err)
	must(t, s.Renew(ctx, l, n.owner(), time.Minute))
	key := prefix + "/subnets/" + l.Subnet.Key()
	const theirs = `{"PublicIP":"10.1.0.2","PublicIPv6":null,"BackendType":"host-gw"}`
	_, err = c.Put(ctx, key, theirs)
	must(t, err)
	if err := s.Renew(ctx, l, n.owner(), time.Minute); !errors.Is(err, lease.ErrLost) {
		t.Fatalf("got %v", err)
	}
	got, err := c.Get(ctx, key)
	must(t, err)
	if string(got.Kvs[0].Value) != theirs {
		t.Fatalf("the key was overwritten with %s", got.Kvs[0].Value)
	}
}

func TestLossIsNoticedWhateverTheReason(t *testing.T) {
	c, ctx := server(t), t.Context()
	s := store(c)
	n := node{ip: netip.MustParseAddr("10.1.0.1"), config: network(t, `{"Network":"10.0.0.0/16"}`)}
	for name, lose := range map[string]func(lease.Lease) error{
		"revoked": func(l lease.Lease) error {
			_, err := c.Revoke(ctx, clientv3.LeaseID(l.ID))
			return err
		},
		"deleted": func(l lease.Lease) error {
			_, err := c.Delete(ctx, prefix+"/subnets/"+l.Subnet.Key())
			return err
		},
		"emptied": func(lease.Lease) error {
			_, err := c.Delete(ctx, "/", clientv3.WithPrefix())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := n.acquire(ctx, s, time.Minute)
			must(t, err)
			must(t, lose(l))
			if err := s.Renew(ctx, l, n.owner(), time.Minute); !errors.Is(err, lease.ErrLost) {
				t.Fatalf("got %v", err)
			}
			n.id = l.ID
			_, err = n.acquire(ctx, s, time.Minute)
			must(t, err)
			if all := leases(t, c); len(all) != 1 {
				t.Errorf("etcd leases %v", all)
			}
		})
	}
}

func TestReservationStaysAReservation(t *testing.T) {
	c, ctx := server(t), t.Context()
	s := store(c)
	key := prefix + "/subnets/10.0.7.0-24"
	_, err := c.Put(ctx, key, `{"PublicIP":"10.1.0.1","PublicIPv6":null,"BackendType":"host-gw"}`)
	must(t, err)
	n := node{ip: netip.MustParseAddr("10.1.0.1"), config: network(t, `{"Network":"10.0.0.0/16"}`)}
	l, err := n.acquire(ctx, s, time.Minute)
	must(t, err)
	must(t, s.Renew(ctx, l, n.owner(), time.Minute))
	got, err := c.Get(ctx, key)
	must(t, err)
	if l.Subnet.Key() != "10.0.7.0-24" || !l.Reservation() || got.Kvs[0].Lease != 0 || len(leases(t, c)) != 0 {
		t.Fatalf("%+v, lease %x, etcd leases %v", l, got.Kvs[0].Lease, leases(t, c))
	}
}

func TestReleaseLeavesNothing(t *testing.T) {
	c, ctx := server(t), t.Context()
	s := store(c)
	n := node{ip: netip.MustParseAddr("10.1.0.1"), config: network(t, `{"Network":"10.0.0.0/16"}`)}
	l, err := n.acquire(ctx, s, time.Minute)
	must(t, err)
	must(t, s.Release(ctx, l))
	v, err := s.List(ctx)
	must(t, err)
	if len(v.Leases)+len(v.Owners)+len(leases(t, c)) != 0 {
		t.Fatalf("%+v", v)
	}
}

func TestNonsenseIsIgnoredAndNamed(t *testing.T) {
	c, ctx := server(t), t.Context()
	for key, value := range map[string]string{
		"/subnets/10.0.1.0-24": `{"PublicIP":"10.1.0.1","BackendType":"host-gw"}`,
		"/subnets/hello":       `{"PublicIP":"10.1.0.2"}`,
		"/subnets/10.0.2.0-24": "",
		"/subnets/10.0.3.0-24": `{"PublicIP":"10.1`,
		"/owners/10.0.4.0-24":  `[]`,
	} {
		_, err := c.Put(ctx, prefix+key, value)
		must(t, err)
	}
	v, err := store(c).List(ctx)
	must(t, err)
	if len(v.Leases) != 1 || len(v.Owners) != 0 || len(v.Ignored) != 4 {
		t.Fatalf("%+v", v)
	}
}

// watched follows a watcher's views.
func watched(tb testing.TB, s *lease.Store) <-chan lease.View {
	tb.Helper()
	views := make(chan lease.View, 100)
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		lease.NewWatcher(s, 50*time.Millisecond, time.Second).Run(ctx, func(v lease.View) { views <- v })
	})
	tb.Cleanup(func() {
		stop()
		done.Wait()
	})
	return views
}

// until reads views until one has n leases.
func until(tb testing.TB, views <-chan lease.View, n int) lease.View {
	tb.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case v := <-views:
			if len(v.Leases) == n {
				return v
			}
		case <-deadline:
			tb.Fatalf("no view with %d leases", n)
		}
	}
}

func TestWatchFollowsChangesAndCompaction(t *testing.T) {
	c, ctx := server(t), t.Context()
	views := watched(t, store(c))
	until(t, views, 0)
	var last int64
	for i := range 3 {
		put, err := c.Put(ctx, fmt.Sprintf("%s/subnets/10.0.%d.0-24", prefix, i+1), `{"PublicIP":"10.1.0.1"}`)
		must(t, err)
		last = put.Header.Revision
		until(t, views, i+1)
	}
	_, err := c.Compact(ctx, last)
	must(t, err)
	_, err = c.Delete(ctx, prefix+"/subnets/10.0.1.0-24")
	must(t, err)
	until(t, views, 2)
}

// etcd answers no request for a sign of life on a watch from a revision that does not exist yet, and nobody
// writes in a quiet cluster: its agents used to list again and again, and said so each time.
func TestQuietEtcdIsListedOnce(t *testing.T) {
	c, ctx := server(t), t.Context()
	_, err := c.Put(ctx, prefix+"/subnets/10.0.1.0-24", `{"PublicIP":"10.1.0.1"}`)
	must(t, err)
	const check, timeout = 20 * time.Millisecond, 500 * time.Millisecond
	ctx, stop := context.WithTimeout(ctx, 4*timeout)
	defer stop()
	var views []lease.View
	lease.NewWatcher(store(c), check, timeout).Run(ctx, func(v lease.View) { views = append(views, v) })
	if len(views) != 1 || len(views[0].Leases) != 1 {
		t.Errorf("%d views of what never changed: %+v", len(views), views)
	}
}
