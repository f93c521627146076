package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/overlay/lease"
)

const network77 = `{"Network":"10.77.0.0/16","Backend":{"Type":"vxlan","VNI":77}}`

// ready waits until an agent is.
func (l lab) ready(log *journal) {
	l.tb.Helper()
	within(l.tb, 20*time.Second, "the agent is ready", func() bool {
		return strings.Contains(log.String(), "msg=ready")
	})
}

// writes counts what is written to etcd while a second goes by.
func (l lab) writes() int64 {
	l.tb.Helper()
	revision := func() int64 {
		r, err := l.etcd.Get(l.tb.Context(), "x")
		must(l.tb, err)
		return r.Header.Revision
	}
	before := revision()
	<-time.After(time.Second)
	return revision() - before
}

// An agent that is started before the one that it takes over from has ended, or a second one by mistake,
// must not fight it for the key.
func TestTwoAgentsOfOneNodeDoNotFight(t *testing.T) {
	l := newLab(t, 1, network77)
	o := l.options()
	for range 2 {
		log, _, _ := l.run(o)
		l.ready(log)
	}
	if n := l.writes(); n > 2 {
		t.Errorf("%d writes a second", n)
	}
}

// Two nodes with one name and one address cannot be told from a node whose disk was lost.
func TestTwoNodesOfOneNameAndAddressFightSlowly(t *testing.T) {
	l := newLab(t, 2, network77)
	for range 2 {
		log, _, _ := l.run(l.options())
		l.ready(log)
	}
	if n := l.writes(); n > 6 {
		t.Errorf("%d writes a second", n)
	}
}

func TestCopyOfADiskBecomesANodeOfItsOwn(t *testing.T) {
	l := newLab(t, 3, network77)
	first, second := l.options(), l.options()
	for _, o := range []*Options{&first, &second} {
		log, a, stop := l.run(*o)
		l.ready(log)
		stop()
		// The device stays, as on a machine that is cloned while it runs.
		raw, err := os.ReadFile(filepath.Join(o.StateDir, stateFile))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(second.StateDir, stateFile), raw, 0o600))
		second.NodeName, second.PublicIP = "copy", addr("198.51.100.7")
		t.Log(a.own)
	}
	r, err := l.etcd.Get(t.Context(), "/coreos.com/network/subnets/", clientv3.WithPrefix())
	must(t, err)
	if len(r.Kvs) != 2 || r.Kvs[0].Lease == r.Kvs[1].Lease {
		t.Errorf("the two share an etcd lease: %v", r.Kvs)
	}
	if mac := func(i int) string {
		_, after, _ := strings.Cut(string(r.Kvs[i].Value), "VtepMAC")
		return after
	}; mac(0) == mac(1) {
		t.Errorf("the two share a MAC: %v", r.Kvs)
	}
}

// A node may leave long after its subnet has gone to another, whose lease may be gone for a moment then.
func TestLeaveKeepsTheRecordOfANewOwner(t *testing.T) {
	l := newLab(t, 4, network77)
	o := l.options()
	s := fresh()
	s.Subnet, s.PublicIP = "10.77.5.0-24", addr("192.0.2.4")
	must(t, s.save(o.StateDir))
	l.put("owners/10.77.5.0-24", `{"Attrs":{"PublicIP":"192.0.2.9","PublicIPv6":null,"BackendType":"vxlan"},`+
		`"Node":"new","Instance":"new","Seen":"2026-01-01T00:00:00Z","TTL":86400}`)
	must(t, Leave(t.Context(), o, slog.New(slog.DiscardHandler)))
	r, err := l.etcd.Get(t.Context(), "/coreos.com/network/owners/10.77.5.0-24")
	must(t, err)
	if len(r.Kvs) != 1 {
		t.Error("the new owner's record is gone, and with it what its peers know of it")
	}
}

// A lease that goes in the second after it was taken is not taken again at once (see register), and in that
// second other news are published, which must not end the wait for the next try.
func TestLeaseLostAtOnceIsTakenAgain(t *testing.T) {
	l := newLab(t, 7, network77)
	log, _, _ := l.run(l.options())
	l.ready(log)
	of := func(ip string) (keys []string) {
		r, err := l.etcd.Get(t.Context(), "/coreos.com/network/subnets/", clientv3.WithPrefix())
		must(t, err)
		for _, kv := range r.Kvs {
			if kv.Lease != 0 && strings.Contains(string(kv.Value), `"PublicIP":"`+ip+`"`) {
				keys = append(keys, string(kv.Key))
			}
		}
		return keys
	}
	had := of("192.0.2.7")
	if len(had) != 1 {
		t.Fatalf("the node has the leases %v", had)
	}
	other := func(n int) string {
		return fmt.Sprintf(`{"PublicIP":"192.0.2.%d","BackendType":"vxlan",`+
			`"BackendData":{"VNI":77,"VtepMAC":"02:00:00:00:00:%02d"}}`, n, n)
	}
	l.put(strings.TrimPrefix(had[0], "/coreos.com/network/"), other(90))
	for n := 91; n < 99; n++ { // less than a publication apart
		<-time.After(publishPause / 2)
		l.put(fmt.Sprintf("subnets/10.77.%d.0-24", 100+n), other(n))
	}
	if len(of("192.0.2.7")) != 0 {
		t.Skip("this machine is too slow to lose a lease in the second after it was taken")
	}
	within(t, 10*time.Second, "the node has a lease again", func() bool { return len(of("192.0.2.7")) == 1 })
}

// The next try of a renewal that has failed may be later than the end of the lease.
func TestALeaseIsRenewedAtOnceWhenEtcdAnswersAgain(t *testing.T) {
	l := newLab(t, 8, network77)
	a, err := New(l.options(), slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { _ = a.client.Close() })
	a.state = fresh()
	must(t, a.waitUplink(t.Context()))
	a.view, err = a.store.List(t.Context())
	must(t, err)
	if a.online = true; !a.register(t.Context()) {
		t.Fatal("not registered")
	}
	away, end := context.WithCancel(t.Context())
	end()
	if a.renew(away); !a.renewFails { // the next try is due in 10 s
		t.Fatal("a renewal without etcd is not told from a good one")
	}
	listed, err := a.store.List(t.Context())
	must(t, err)
	listed.Listed = true
	views := make(chan lease.View, 1)
	views <- listed
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.loop(ctx, views) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	within(t, 5*time.Second, "the lease is renewed", func() (renewed bool) {
		a.status.note(func(s *status) { renewed = s.renewals == 1 })
		return renewed
	})
}
