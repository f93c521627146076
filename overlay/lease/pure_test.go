package lease

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/overlay/netconf"
)

func TestKeysRoundTrip(t *testing.T) {
	for _, key := range []string{"10.5.52.0-24", "10.5.52.0-24&fc00:1:2:3::-64", "fc00:1:2:3::-64"} {
		s, err := ParseKey(key)
		if err != nil {
			t.Errorf("%s: %v", key, err)
		} else if s.Key() != key {
			t.Errorf("%s became %s", key, s.Key())
		}
	}
}

func TestWhatIsNoKeyIsRefused(t *testing.T) {
	for _, key := range []string{
		"", "x", "10.5.52.0", "10.5.52.1-24", "10.5.52.0-33", "10.5.052.0-24", "10.5.52.0-024", "10.5.52.0-24&",
		"&fc00::-64", "10.5.52.0-24&10.6.0.0-24", "fc00:0::-64", "10.5.52.0-24/x", "::ffff:10.5.0.0-120",
	} {
		if s, err := ParseKey(key); err == nil {
			t.Errorf("%q was taken for %+v", key, s)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("10.5.52.0-24")
	f.Add("10.5.52.0-24&fc00:1:2:3::-64")
	f.Add("fc00::-64")
	f.Fuzz(func(t *testing.T, key string) {
		if s, err := ParseKey(key); err == nil && s.Key() != key {
			t.Errorf("%q became %q", key, s.Key())
		}
	})
}

const flannels = `{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan",` +
	`"BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}`

func TestAttrsAreWrittenAsFlannelDoes(t *testing.T) {
	var a Attrs
	if err := json.Unmarshal([]byte(flannels), &a); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(a)
	if err != nil || string(raw) != flannels {
		t.Fatalf("%v\n got %s\nwant %s", err, raw, flannels)
	}
}

func TestDamagedAttrsAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		`{"PublicIP":"192.168.6`: "unexpected end",
		`{}`:                     `PublicIP "" is not`,
		`{"PublicIP":"fc00::1"}`: "not an IPv4 address",
		`{"PublicIP":"10.0.0.1","PublicIPv6":"1.2.3.4"}`:                               "not an IPv6 address",
		`{"PublicIP":"10.0.0.1","BackendType":"vxlan","BackendData":{"VtepMAC":"xx"}}`: "not a MAC",
		`{"PublicIP":"10.0.0.1","BackendType":"vxlan","BackendData":7}`:                "BackendData",
	} {
		var a Attrs
		if err := json.Unmarshal([]byte(raw), &a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", raw, want, err)
		}
	}
	var a Attrs
	if err := json.Unmarshal(
		[]byte(`{"PublicIP":"10.0.0.1","BackendType":"udp","BackendData":7}`),
		&a,
	); err != nil {
		t.Errorf("data of a backend that is not ours: %v", err)
	}
}

func FuzzAttrs(f *testing.F) {
	f.Add([]byte(flannels))
	f.Add([]byte(`{"PublicIP":"0.0.0.0","PublicIPv6":"fc00::1","BackendType":"host-gw"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var a, b Attrs
		if json.Unmarshal(raw, &a) != nil {
			return
		}
		again, err := json.Marshal(a)
		if err == nil {
			err = json.Unmarshal(again, &b)
		}
		if err != nil || !a.Same(b) {
			t.Errorf("%s became %s (%v)", raw, again, err)
		}
	})
}

var now = time.Unix(1_700_000_000, 0)

// small has the four subnets 10.0.0.0/26 to 10.0.0.192/26, of which the first is not handed out.
var small = func() netconf.Config {
	c, err := netconf.Parse([]byte(`{"Network":"10.0.0.0/24","SubnetLen":26}`))
	if err != nil {
		panic(err)
	}
	return c
}()

func sub(text string) Subnet { return Subnet{V4: netip.MustParsePrefix(text)} }

func of(ip string) Attrs { return Attrs{PublicIP: netip.MustParseAddr(ip), BackendType: "vxlan"} }

func request() Request {
	return Request{
		Config: small, IP: netip.MustParseAddr("1.1.1.1"), Node: "a", Instance: "A", Hold: time.Hour,
		Now: now, Pick: func(int) int { return 0 },
	}
}

func owner(subnet, ip string, seen time.Time) Owner {
	return Owner{Subnet: sub(subnet), Attrs: of(ip), Node: "n" + ip, Instance: "I" + ip, Seen: seen, TTL: 60}
}

func TestChoose(t *testing.T) {
	mine := Lease{Subnet: sub("10.0.0.128/26"), Attrs: of("1.1.1.1"), ID: 7, ModRevision: 9}
	other := Lease{Subnet: sub("10.0.0.64/26"), Attrs: of("2.2.2.2"), ID: 8}
	for name, c := range map[string]struct {
		view   View
		change func(*Request)
		want   string
		check  func(Choice) bool
	}{
		"first free": {want: "10.0.0.64-26"},
		"held already": {
			view: View{Leases: []Lease{mine}}, want: "10.0.0.128-26",
			check: func(c Choice) bool { return c.Existing != nil },
		},
		"had, free": {change: func(r *Request) { r.Previous = sub("10.0.0.192/26") }, want: "10.0.0.192-26"},
		"had, taken": {
			view:   View{Leases: []Lease{other}},
			change: func(r *Request) { r.Previous = sub("10.0.0.64/26") }, want: "10.0.0.128-26",
		},
		"had, unfit":  {change: func(r *Request) { r.Previous = sub("10.9.0.0/26") }, want: "10.0.0.64-26"},
		"never owned": {view: View{Owners: []Owner{owner("10.0.0.64/26", "3.3.3.3", now)}}, want: "10.0.0.128-26"},
		"then the silent longest": {view: View{Owners: []Owner{
			owner("10.0.0.64/26", "3.3.3.3", now.Add(-5*time.Hour)),
			owner("10.0.0.128/26", "4.4.4.4", now.Add(-9*time.Hour)),
			owner("10.0.0.192/26", "5.5.5.5", now.Add(-7*time.Hour)),
		}}, want: "10.0.0.128-26", check: func(c Choice) bool { return !c.Held }},
		"inside the hold only when nothing else is left": {view: View{Leases: []Lease{other}, Owners: []Owner{
			owner("10.0.0.128/26", "4.4.4.4", now.Add(-time.Minute)),
			owner("10.0.0.192/26", "5.5.5.5", now),
		}}, want: "10.0.0.128-26", check: func(c Choice) bool { return c.Held }},
		"a lease that does not fit is given up": {
			view:  View{Leases: []Lease{{Subnet: sub("10.7.0.0/26"), Attrs: of("1.1.1.1"), ID: 1}}},
			want:  "10.0.0.64-26",
			check: func(c Choice) bool { return c.Unfit != nil },
		},
		"an address that moved to us with its lease gone": {
			view: View{Leases: []Lease{mine}, Owners: []Owner{owner("10.0.0.128/26", "9.9.9.9", now)}},
			want: "10.0.0.128-26",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := request()
			if c.change != nil {
				c.change(&r)
			}
			got, err := Choose(c.view, r)
			if err != nil {
				t.Fatal(err)
			}
			if got.Subnet.Key() != c.want || (c.check != nil && !c.check(got)) {
				t.Errorf("want %s, got %+v", c.want, got)
			}
		})
	}
}

func TestChooseRefusesATakenAddress(t *testing.T) {
	v := View{
		Leases: []Lease{{Subnet: sub("10.0.0.64/26"), Attrs: of("1.1.1.1"), ID: 7}},
		Owners: []Owner{{Subnet: sub("10.0.0.64/26"), Attrs: of("1.1.1.1"), Node: "b", Instance: "B", Seen: now}},
	}
	_, err := Choose(v, request())
	var taken *TakenError
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), `node "b"`) {
		t.Fatalf("got %v", err)
	}
	r := request()
	r.Node = "b" // the same node with a new disk
	if _, err := Choose(v, r); err != nil {
		t.Fatal(err)
	}
}

func TestChooseSaysWhenNothingIsFree(t *testing.T) {
	v := View{}
	for _, s := range []string{"10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26"} {
		v.Leases = append(v.Leases, Lease{Subnet: sub(s), Attrs: of("2.2.2.2"), ID: 1})
	}
	if _, err := Choose(
		v,
		request(),
	); !errors.Is(err, ErrExhausted) ||
		!strings.Contains(err.Error(), "--leave") {
		t.Fatalf("got %v", err)
	}
}

// all has every lease take its subnet.
func all(Lease) bool { return true }

func TestALeaseThatTakesNothingEndsNoRecord(t *testing.T) {
	v := View{
		Leases: []Lease{
			{Subnet: sub("10.0.0.0/24"), Attrs: of("6.6.6.6")}, {Subnet: sub("10.0.0.64/26"), Attrs: of("3.3.3.3")},
		},
		Owners: []Owner{owner("10.0.0.192/26", "3.3.3.3", now)},
	}
	none := func(Lease) bool { return false }
	peers, _, _ := Peers(v, Subnet{}, netip.MustParseAddr("1.1.1.1"), netip.Addr{}, time.Hour, now, none)
	if len(peers) != 3 || peers[0].Subnet != sub("10.0.0.192/26") {
		t.Fatalf("%+v", peers)
	}
}

func TestPeersAreExplainedByLeaseOrRecord(t *testing.T) {
	ip := netip.MustParseAddr("1.1.1.1")
	own := sub("10.0.0.64/26")
	v := View{
		Leases: []Lease{
			{Subnet: own, Attrs: of("1.1.1.1"), ID: 1}, {Subnet: sub("10.0.0.128/26"), Attrs: of("2.2.2.2"), ID: 2},
		},
		Owners: []Owner{
			owner("10.0.0.128/26", "7.7.7.7", now),                 // leased to another by now
			owner("10.0.0.192/26", "3.3.3.3", now),                 // its lease is gone
			owner("10.0.1.0/26", "4.4.4.4", now.Add(-time.Hour*3)), // beyond the hold
			owner("10.0.1.64/26", "2.2.2.2", now),                  // has moved
			owner("10.0.0.64/26", "8.8.8.8", now),                  // had what is this node's own
		},
	}
	peers, _, next := Peers(v, own, ip, netip.Addr{}, time.Hour, now, all)
	var got []string
	for _, p := range peers {
		got = append(got, p.Subnet.Key()+" "+p.Attrs.PublicIP.String())
	}
	if strings.Join(got, ", ") != "10.0.0.192-26 3.3.3.3, 10.0.0.128-26 2.2.2.2" {
		t.Fatalf("got %v", got)
	}
	if want := now.Add(time.Hour + time.Minute); !next.Equal(want) {
		t.Fatalf("next %s, want %s", next, want)
	}
	if peers, _, _ := Peers(v, own, ip, netip.Addr{}, time.Hour, next, all); len(peers) != 1 {
		t.Fatalf("after the hold: %v", peers)
	}
}

func TestOfTwoLeasesTheRecordedOneCounts(t *testing.T) {
	v := View{
		Leases: []Lease{
			{Subnet: sub("10.0.0.64/26"), Attrs: of("2.2.2.2"), ID: 1},
			{Subnet: sub("10.0.0.128/26"), Attrs: of("2.2.2.2"), ID: 2},
		},
		Owners: []Owner{owner("10.0.0.128/26", "2.2.2.2", now)},
	}
	peers, doubt, _ := Peers(v, Subnet{}, netip.MustParseAddr("1.1.1.1"), netip.Addr{}, time.Hour, now, all)
	if len(peers) != 1 || peers[0].ID != 2 || len(doubt) != 1 {
		t.Fatalf("%+v, %+v", peers, doubt)
	}
}

func TestARecordedLeaseComesFirst(t *testing.T) {
	v := View{
		Leases: []Lease{
			{Subnet: sub("10.0.0.64/26"), Attrs: of("6.6.6.6")}, {Subnet: sub("10.0.0.128/26"), Attrs: of("2.2.2.2")},
		},
		Owners: []Owner{owner("10.0.0.128/26", "2.2.2.2", now)},
	}
	peers, _, _ := Peers(v, Subnet{}, netip.MustParseAddr("1.1.1.1"), netip.Addr{}, time.Hour, now, all)
	if len(peers) != 2 || peers[0].Subnet != sub("10.0.0.128/26") {
		t.Fatalf("%+v", peers)
	}
}

func TestWhatARewoundEtcdForgotIsMissing(t *testing.T) {
	before := View{
		Leases: []Lease{
			{Subnet: sub("10.0.0.64/26"), Attrs: of("2.2.2.2")}, {Subnet: sub("10.0.0.128/26"), Attrs: of("3.3.3.3")},
		},
		Owners: []Owner{owner("10.0.0.64/26", "2.2.2.2", now), owner("10.0.0.192/26", "4.4.4.4", now)},
	}
	after := View{Leases: []Lease{{Subnet: sub("10.0.0.0/26"), Attrs: of("3.3.3.3")}}} // has moved
	missing := Missing(before, after, now)
	if len(missing) != 2 || missing[0].Subnet != sub("10.0.0.64/26") ||
		missing[1].Subnet != sub("10.0.0.192/26") {
		t.Fatalf("%+v", missing)
	}
}

func TestJunkIsInTheWayButNotOverOnesOwn(t *testing.T) {
	v := View{Junk: []Lease{{Subnet: sub("10.0.0.64/26"), ModRevision: 5}}}
	r := request()
	c, err := Choose(v, r)
	if err != nil || c.Subnet != sub("10.0.0.128/26") {
		t.Fatalf("%+v, %v", c, err)
	}
	r.Previous = sub("10.0.0.64/26")
	if c, err = Choose(v, r); err != nil || c.Subnet != sub("10.0.0.128/26") {
		t.Fatalf("without a record: %+v, %v", c, err)
	}
	mine := owner("10.0.0.64/26", "1.1.1.1", now)
	mine.Instance = r.Instance
	v.Owners = []Owner{mine}
	if c, err = Choose(v, r); err != nil || c.Subnet != r.Previous || c.Existing.ModRevision != 5 {
		t.Fatalf("with a record: %+v, %v", c, err)
	}
}

// A peer that keeps no record, as a plain flannel, is not lost when its key is overwritten with garbage.
func TestJunkOverAPeersLeaseLeavesThePeer(t *testing.T) {
	w := &Watcher{}
	was := Lease{Subnet: sub("10.0.0.64/26"), Attrs: of("2.2.2.2")}
	w.recall(View{Leases: []Lease{was}})
	peersOf := func(v View) []Lease {
		w.recall(v)
		peers, _, _ := Peers(v, sub("10.0.0.0/26"), netip.MustParseAddr("1.1.1.1"), netip.Addr{}, time.Hour, now,
			func(Lease) bool { return true })
		return peers
	}
	junk := func() View { return View{Junk: []Lease{{Subnet: was.Subnet}}} }
	for range 2 { // the second is a new list
		if peers := peersOf(junk()); len(peers) != 1 || peers[0].Attrs.Node() != was.Attrs.Node() {
			t.Fatalf("%+v", peers)
		}
	}
	moved := junk()
	moved.Leases = []Lease{{Subnet: sub("10.0.0.128/26"), Attrs: of("2.2.2.2")}}
	if peers := peersOf(moved); len(peers) != 1 || peers[0].Subnet != sub("10.0.0.128/26") {
		t.Fatalf("a peer that has another lease: %+v", peers)
	}
	peersOf(View{}) // the key is gone
	if peers := peersOf(junk()); len(peers) != 0 {
		t.Fatalf("a key that was never a lease since it was deleted: %+v", peers)
	}
}

func TestAKeyOverTheWholeNetworkIsNotInTheWay(t *testing.T) {
	v := View{Leases: []Lease{{Subnet: sub("10.0.0.0/24"), Attrs: of("2.2.2.2"), ID: 1}}}
	if c, err := Choose(v, request()); err != nil || c.Subnet != sub("10.0.0.64/26") {
		t.Fatalf("%+v, %v", c, err)
	}
}
