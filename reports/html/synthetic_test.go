package html_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nemesh/nemesh/reports/record"
)

// synthetic writes a record with scenarios of a few seconds each on four nodes with 12 pairs at 100 echoes a
// second. Every tenth fails: an outage, a followed packet and the state at that moment. pad is the number of
// lines of output of each.
func synthetic(tb testing.TB, scenarios int, seconds, pad int) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "record.jsonl")
	w, err := record.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	w.Write(record.Event{At: 1e9, Kind: record.KindRun, Run: &record.Run{
		Version: record.Version,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"nemesh", "run"}, Go: "go1.26",
		Kernel: "6.1", CPUs: 2, Module: "v0.2.0", Seed: 7,
	}})
	for i := range scenarios {
		g := generator{
			w: w.For(fmt.Sprintf("synthetic-%03d keeps its pods while etcd is away", i)).
				InCluster(fmt.Sprint(i)),
			start:  int64(i)*2e9 + 2e9,
			length: int64(seconds) * 1e9,
			fails:  i%10 == 3,
			n:      i,
		}
		g.scenario(pad)
	}
	w.Write(record.Event{
		At: int64(scenarios+seconds) * 2e9, Kind: record.KindEnd,
		End: &record.End{Exit: 1, Duration: int64(scenarios) * 2e9},
	})
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}

type generator struct {
	w             *record.Writer
	start, length int64
	fails         bool
	n             int
}

func (g generator) at(part float64) int64 { return g.start + int64(part*float64(g.length)) }

func (g generator) scenario(pad int) {
	nodes := map[string]string{"etcd": "192.168.200.10"}
	for n := 1; n <= 4; n++ {
		name := fmt.Sprintf("node%02d", n)
		nodes[name] = fmt.Sprintf("192.168.200.20%d", n)
		g.w.Write(record.Event{
			At: g.at(0.01), Kind: record.KindProcess,
			Process: &record.Process{Machine: name, Name: "overlayd", Pid: 100 + n},
		})
		g.w.Write(
			record.Event{At: g.at(0.02), Kind: record.KindLease, Lease: &record.Lease{
				Change: record.LeasePut,
				Key: fmt.Sprintf(
					"subnets/172.16.%d.0-24",
					n,
				),
				Value:    `{"PublicIP":"` + nodes[name] + `"}`,
				Revision: int64(n),
			}},
		)
		g.w.Write(record.Event{
			At: g.at(0.03), Kind: record.KindPod,
			Pod: &record.Pod{Name: name + "-pod1", Node: name, Addr: fmt.Sprintf("172.16.%d.2", n)},
		})
	}
	g.w.Write(record.Event{At: g.at(0.05), Kind: record.KindWorld, World: &record.World{
		Nodes:   nodes,
		Network: "172.16.0.0/16", Agent: "overlayd", Device: "flannel.1", BuiltIn: 9e8,
	}})
	g.state(record.Before, 0.2, "REACHABLE")
	g.fault(0.2, record.FaultInjecting)
	g.fault(0.22, record.FaultProved)
	g.state(record.During, 0.78, "INCOMPLETE")
	g.fault(0.8, record.FaultHealed)
	for i := range pad {
		g.w.Write(record.Event{At: g.at(float64(i) / float64(pad)), Kind: record.KindLog, Log: &record.Log{
			Machine: fmt.Sprintf("node%02d", i%4+1),
			Process: "overlayd",
			Text: fmt.Sprintf(
				`time=2026-01-02T03:04:05Z level=INFO msg="reconciled </script><b>%d" peers=3 scenario=%d`,
				i,
				g.n,
			),
		}})
	}
	v := &record.Verdict{
		State:    record.Passed,
		Clusters: []string{fmt.Sprint(g.n)},
		Broke:    []string{"etcd stopped"},
		Healed:   true,
		Duration: g.length,
		Location: "scenarios/x_test.go:7",
		Labels:   []string{"kind:synthetic"},
	}
	g.measure(v)
	if g.fails {
		g.failed(v)
	}
	g.w.Write(record.Event{At: g.at(1), Kind: record.KindVerdict, Verdict: v})
}

func (g generator) fault(part float64, phase string) {
	g.w.Write(
		record.Event{
			At:    g.at(part),
			Kind:  record.KindFault,
			Fault: &record.Fault{Name: "etcd stopped", Phase: phase},
		},
	)
}

func (g generator) state(when string, part float64, neighbour string) {
	var states []record.State
	for n := 1; n <= 4; n++ {
		var routes []string
		for m := range 20 {
			routes = append(routes, fmt.Sprintf("172.16.%d.0/24 via 172.16.%d.0 dev flannel.1 onlink", m, m))
		}
		states = append(states, record.State{Where: fmt.Sprintf("node%02d", n), What: "routes", Lines: routes},
			record.State{Where: fmt.Sprintf("node%02d", n), What: "neighbours", Lines: []string{
				"172.16.9.0 dev flannel.1 lladdr 02:00:00:00:00:09 " + neighbour,
			}})
	}
	g.w.Write(record.Event{At: g.at(part), Kind: record.KindState, When: when, State: states})
}

// measure writes series and totals: nothing is lost, or in one that fails a fifth of the time of one pair.
// Round trip times jump, so that buckets stay short.
func (g generator) measure(v *record.Verdict) {
	probe := &record.Probe{}
	tenths := int(g.length / 1e8)
	for from := 1; from <= 4; from++ {
		for to := 1; to <= 4; to++ {
			if from == to {
				continue
			}
			p := record.Pair{From: fmt.Sprintf("node%02d-pod1", from), To: fmt.Sprintf("node%02d-pod1", to)}
			s := record.Series{From: p.From, To: p.To, Start: g.start}
			for i := range tenths {
				lost := int64(0)
				if g.fails && from == 1 && to == 4 && i >= tenths*3/10 && i < tenths/2 {
					lost = 10
				}
				rtt := int64(40 + (i*7+from*13+to)%50)
				s.Buckets = append(
					s.Buckets,
					record.Bucket{int64(i) * 100, 100, 10, lost, rtt - 10, rtt, rtt + int64(i%9)*400},
				)
				p.Sent, p.Lost = p.Sent+10, p.Lost+uint64(lost)
			}
			if p.Lost > 0 {
				o := record.Outage{
					Start:  g.start + int64(tenths*3/10)*1e8,
					Length: int64(p.Lost) * 1e7,
					Lost:   p.Lost,
					Ended:  true,
				}
				p.Outages = append(p.Outages, o)
				v.LongestOutage = o.Length
			}
			v.Sent, v.Lost = v.Sent+p.Sent, v.Lost+p.Lost
			probe.Pairs = append(probe.Pairs, p)
			g.w.Write(record.Event{At: g.at(0.9), Kind: record.KindSeries, Series: []record.Series{s}})
		}
	}
	g.w.Write(record.Event{At: g.at(0.99), Kind: record.KindProbe, Probe: probe})
}

func (g generator) failed(v *record.Verdict) {
	v.State, v.Message = record.Failed, "Expected\n    <uint64>: 160\nto be zero"
	hop := func(node, device, way string, seen bool) record.Hop {
		h := record.Hop{Node: node, Device: device, Direction: way, Seen: seen}
		if seen {
			h.At = g.at(0.4)
		}
		return h
	}
	g.w.Write(record.Event{At: g.at(0.41), Kind: record.KindTrace, Trace: &record.Trace{
		From:  "node01-pod1",
		To:    "node04-pod1",
		Cause: "neighbour-incomplete",
		Sentence: "reply lost on node04 at flannel.1: neighbour 172.16.1.0 is INCOMPLETE " +
			"(who-has unanswered 3 times)",
		Hops: []record.Hop{
			hop("node01-pod1", "eth0", record.Request, true),
			hop("node01", "flannel.1", record.Request, true),
			hop("switch", "node01", record.Request, true),
			hop("node04", "flannel.1", record.Request, true),
			hop("node04-pod1", "eth0", record.Request, true),
			hop("node04-pod1", "eth0", record.Reply, true),
			hop("node04", "flannel.1", record.Reply, false),
			hop("node01", "flannel.1", record.Reply, false),
		},
	}})
	g.w.Write(record.Event{At: g.at(0.42), Kind: record.KindReach, When: record.AtFail, Reach: []record.Reach{
		{From: "node01-pod1", To: "node04-pod1", Want: true, Sent: 3, Lost: 3},
		{From: "node04-pod1", To: "node01-pod1", Want: true, Got: true, Sent: 3},
	}})
	g.w.Write(record.Event{At: g.at(0.43), Kind: record.KindInvariant, Invariant: &record.Invariant{
		Name: "each lease has its route", Details: []string{"node04 has none to 172.16.1.0/24"},
	}})
}

// load reads a record.
func load(tb testing.TB, path string) *record.Outcome {
	tb.Helper()
	o, err := record.Load(path)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// size returns how many bytes a file has.
func size(tb testing.TB, path string) int64 {
	tb.Helper()
	info, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	return info.Size()
}
