package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/observe"
	"github.com/nemesh/nemesh/harness/pod"
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

// newID makes the id of a cluster from its folder, which no other cluster of the sandbox has.
func newID(dir string) string { return strings.TrimPrefix(filepath.Base(dir), "world-") }

// ID returns the id by which the record knows the cluster.
func (c *Cluster) ID() string { return newID(c.dir) }

// SetScenario says which scenario uses the cluster from now on, for the record.
func (c *Cluster) SetScenario(name string) { c.record.SetScenario(name) }

// recorder is what writes to the record by itself while a cluster stands.
type recorder struct {
	stop context.CancelFunc
	done sync.WaitGroup
	keys keyWatch
}

func (c *Cluster) startRecorder() {
	if c.record == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	c.watch.stop = stop
	c.watch.done.Go(func() { c.watchKeys(ctx) })
	c.watch.done.Go(func() {
		tick := time.NewTicker(seriesEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.writeSeries(false)
			}
		}
	})
}

func (r *recorder) close() {
	if r.stop != nil {
		r.stop()
		r.done.Wait()
	}
}

// writeSeries records the buckets of each pair that are complete; all of them when the mesh has ended.
func (c *Cluster) writeSeries(all bool) {
	if c.record == nil {
		return
	}
	var lines []record.Series
	for _, s := range c.mesh.TakeSeries(all) {
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
		c.record.Write(record.Event{Kind: record.KindSeries, Series: lines})
	}
}

// writeProbe records what the mesh has measured in all.
func (c *Cluster) writeProbe(report probe.Report) {
	p := &record.Probe{Skipped: report.Skipped}
	for _, r := range report.Pairs {
		pair := record.Pair{From: r.From, To: r.To, FromNode: r.FromNode, ToNode: r.ToNode, IPv6: r.IPv6,
			Sent: r.Sent, Lost: r.Lost, RTTMin: int64(r.RTT.Min), RTTMean: int64(r.RTT.Mean()),
			RTTMax: int64(r.RTT.Max)}
		for _, o := range r.Outages {
			pair.Outages = append(pair.Outages, record.Outage{Start: record.At(o.Start), Length: int64(o.Length),
				Lost: o.Lost, Ended: o.Ended})
		}
		p.Pairs = append(p.Pairs, pair)
	}
	for _, e := range report.Errors {
		p.Errors = append(p.Errors, record.ICMPError{At: e.At, Reporter: e.Reporter.String(), Type: e.Type,
			Code: e.Code, Source: e.Source.String(), Destination: e.Destination.String(), Count: e.Count,
			First: record.At(e.First), Last: record.At(e.Last)})
	}
	c.record.Write(record.Event{Kind: record.KindProbe, Probe: p})
}

// noteProcess records that a process has started and, when it does, that it ended.
func (c *Cluster) noteProcess(machine string, p *node.Process) {
	if c.record == nil {
		return
	}
	about := record.Process{Machine: machine, Name: p.Name(), Pid: p.Pid()}
	c.record.Write(record.Event{Kind: record.KindProcess, Process: &about})
	go func() {
		ended := about
		ended.Exited, ended.How = true, "exit status 0"
		if err := p.ExitErr(); err != nil {
			ended.How = err.Error()
		}
		c.record.Write(record.Event{Kind: record.KindProcess, Process: &ended})
	}()
}

func (c *Cluster) notePod(p *pod.Pod, gone bool) {
	c.record.Write(record.Event{Kind: record.KindPod, Pod: &record.Pod{
		Name: p.Name, Node: p.Machine.Name(), Addr: p.Addr().String(), Gone: gone,
	}})
}

// NoteState records what the kernels hold now and which leases the harness knows, to be compared with other
// moments of the scenario. It asks etcd nothing, so it does not wait when that is away. when is one of
// record.Before, During and After.
func (c *Cluster) NoteState(when string) {
	if c.record == nil {
		return
	}
	states, err := c.kernelState()
	if err != nil {
		states = append(states, record.State{Where: "harness", What: "not read", Lines: []string{err.Error()}})
	}
	states = append(states, record.State{Where: etcdMachine, What: "leases", Lines: c.watch.keys.lines()})
	c.record.Write(record.Event{Kind: record.KindState, When: when, State: states})
}

// WriteState records what the kernels and etcd hold now, for a reader who wants to know why something
// failed.
func (c *Cluster) WriteState(ctx context.Context) error {
	states, err := c.kernelState()
	leases, err2 := c.leaseLines(ctx)
	states = append(states, record.State{Where: etcdMachine, What: "leases", Lines: leases})
	c.record.Write(record.Event{Kind: record.KindState, When: record.AtFail, State: states})
	return errors.Join(err, err2)
}

// kernelState reads the kernels of all nodes, or of the first snapshotNodes.
func (c *Cluster) kernelState() ([]record.State, error) {
	nodes := c.nodes[:min(len(c.nodes), snapshotNodes)]
	taken := make([]observe.Snapshot, len(nodes))
	errs := make([]error, len(nodes))
	var reading errgroup.Group
	reading.SetLimit(4)
	for i, n := range nodes {
		reading.Go(func() error {
			taken[i], errs[i] = observe.Take(n.NetNS())
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
			{"links", s.Links}, {"addresses", s.Addresses}, {"routes", s.Routes}, {"neighbours", s.Neighbours},
			{"fdb", s.FDB}, {"rules", s.Rules},
		} {
			states = append(states, record.State{Where: n.Name(), What: part.what, Lines: part.lines})
		}
	}
	if left := len(c.nodes) - len(nodes); left > 0 {
		states = append(states, record.State{Where: "harness", What: "left out", Lines: []string{
			fmt.Sprintf("the kernels of %d more nodes", left),
		}})
	}
	return states, errors.Join(errs...)
}
