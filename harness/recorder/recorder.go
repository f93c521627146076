// Package recorder writes to the record what happens in a cluster beside what the cluster tells itself: the
// mesh's series, the changes of the overlay's keys, what kernels hold at chosen moments, and where packets
// die.
package recorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/reports/record"
)

const (
	// seriesEvery is how often the series of the mesh go to the record, and so what a killed run may lack.
	seriesEvery = 2 * time.Second
	// snapshotNodes bounds the nodes whose kernels are recorded before, during and after: the tables of a large
	// cluster would drown everything else.
	snapshotNodes = 16
)

// Recorder watches one cluster.
type Recorder struct {
	c    *cluster.Cluster
	rec  *record.Writer
	stop context.CancelFunc
	done sync.WaitGroup
	keys keyWatch

	mu     sync.Mutex
	leases []cluster.Lease // that were told last
}

// Watch starts to record what happens in a cluster; it is for cluster.New.
func (r *Recorder) Watch(c *cluster.Cluster) {
	ctx, stop := context.WithCancel(context.Background())
	r.c, r.rec, r.stop = c, c.Record(), stop
	c.OnMoment(r.NoteState)
	c.OnClose(r.Close)
	r.done.Go(func() { r.watchKeys(ctx) })
	r.done.Go(func() {
		tick := time.NewTicker(seriesEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.writeSeries(false)
			}
		}
	})
}

// Close ends the recording and the cluster's mesh. It is called before the cluster is closed. A recorder
// that watches nothing is closed already.
func (r *Recorder) Close() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.done.Wait()
	r.EndMesh()
}

// EndMesh ends the cluster's mesh, if that is not done, and records what it has measured in all.
func (r *Recorder) EndMesh() {
	if r.c.EndMesh() && len(r.c.AllNodes()) == r.c.Options().Nodes {
		r.writeSeries(true)
		r.writeProbe(r.c.Summary().Report)
	}
}

// writeSeries records the buckets of each pair that are complete; all of them when the mesh has ended.
func (r *Recorder) writeSeries(all bool) {
	if r.rec == nil {
		return
	}
	var lines []record.Series
	for _, s := range r.c.Mesh().TakeSeries(all) {
		start := s.Buckets[0].Start
		line := record.Series{From: s.From, To: s.To, Start: record.At(start)}
		for _, b := range s.Buckets {
			line.Buckets = append(line.Buckets, record.Bucket{
				b.Start.Sub(start).Milliseconds(), b.Length.Milliseconds(), int64(b.Sent), int64(b.Lost),
				b.RTT.Min.Microseconds(), b.RTT.Mean().Microseconds(), b.RTT.Max.Microseconds(),
			})
		}
		lines = append(lines, line)
	}
	if len(lines) > 0 {
		r.rec.Write(record.Event{Kind: record.KindSeries, Series: lines})
	}
}

// writeProbe records what the mesh has measured in all.
func (r *Recorder) writeProbe(report probe.Report) {
	p := &record.Probe{Skipped: report.Skipped}
	for _, m := range report.Pairs {
		pair := record.Pair{
			From: m.From, To: m.To, FromNode: m.FromNode, ToNode: m.ToNode, IPv6: m.IPv6,
			Sent: m.Sent, Lost: m.Lost, RTTMin: int64(m.RTT.Min), RTTMean: int64(m.RTT.Mean()),
			RTTMax: int64(m.RTT.Max),
		}
		for _, o := range m.Outages {
			pair.Outages = append(pair.Outages, record.Outage{
				Start: record.At(o.Start), Length: int64(o.Length),
				Lost: o.Lost, Ended: o.Ended,
			})
		}
		p.Pairs = append(p.Pairs, pair)
	}
	for _, e := range report.Errors {
		p.Errors = append(p.Errors, record.ICMPError{
			At: e.At, Reporter: e.Reporter.String(), Type: e.Type,
			Code: e.Code, Source: e.Source.String(), Destination: e.Destination.String(), Count: e.Count,
			First: record.At(e.First), Last: record.At(e.Last),
		})
	}
	r.rec.Write(record.Event{Kind: record.KindProbe, Probe: p})
}

// NoteState records what the kernels hold now and which leases the harness knows, to be compared with other
// moments of the scenario. It asks etcd nothing, so it does not wait when that is away. when is one of
// record.Before, During and After.
func (r *Recorder) NoteState(when string) {
	if r.rec == nil {
		return
	}
	states, err := r.kernelState()
	if err != nil {
		states = append(states, record.State{Where: "harness", What: "not read", Lines: []string{err.Error()}})
	}
	states = append(states, record.State{Where: cluster.EtcdMachine, What: "leases", Lines: r.keys.lines()})
	r.rec.Write(record.Event{Kind: record.KindState, When: when, State: states})
}

// WriteState records what the kernels and etcd hold now, for a reader who wants to know why something
// failed.
func (r *Recorder) WriteState(ctx context.Context) error {
	states, err := r.kernelState()
	leases, err2 := r.leaseLines(ctx)
	states = append(states, record.State{Where: cluster.EtcdMachine, What: "leases", Lines: leases})
	r.rec.Write(record.Event{Kind: record.KindState, When: record.AtFail, State: states})
	return errors.Join(err, err2)
}

// kernelState reads the kernels of all nodes, or of the first snapshotNodes.
func (r *Recorder) kernelState() ([]record.State, error) {
	all := r.c.AllNodes()
	nodes := all[:min(len(all), snapshotNodes)]
	taken := make([]observe.Lines, len(nodes))
	errs := make([]error, len(nodes))
	var reading errgroup.Group
	reading.SetLimit(4)
	for i, n := range nodes {
		reading.Go(func() error {
			s, err := observe.Read(n.NetNS())
			taken[i], errs[i] = s.Lines(), err
			return nil
		})
	}
	_ = reading.Wait() // the errors are in errs
	var states []record.State
	for i, n := range nodes {
		s := taken[i]
		for _, part := range []struct {
			what  string
			lines []string
		}{
			{"links", s.Links},
			{"addresses", s.Addresses},
			{"routes", s.Routes},
			{"neighbours", s.Neighbours},
			{"fdb", s.FDB},
			{"rules", s.Rules},
		} {
			states = append(states, record.State{Where: n.Name(), What: part.what, Lines: part.lines})
		}
	}
	if left := len(all) - len(nodes); left > 0 {
		states = append(states, record.State{Where: "harness", What: "left out", Lines: []string{
			fmt.Sprintf("the kernels of %d more nodes", left),
		}})
	}
	return states, errors.Join(errs...)
}

func (r *Recorder) leaseLines(ctx context.Context) ([]string, error) {
	if err := r.c.Lacks(driver.FeatureLeases); err != nil {
		return []string{err.Error()}, nil
	}
	if r.c.Lacks(driver.FeatureKeys) == nil &&
		!slices.ContainsFunc(r.c.Etcd().Members(), (*etcd.Member).Running) {
		return []string{"etcd is not running"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	leases, err := r.c.Leases(ctx)
	var lines []string
	for _, l := range leases {
		lines = append(lines, fmt.Sprintf("%s %s ttl %s", l.Key, l.Value, l.TTL))
	}
	return lines, err
}
