package recorder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/follow"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/reports/record"
)

const (
	// followWithin bounds following one packet, and maxFollowed is how many are followed after a failure.
	followWithin = 3 * time.Second
	maxFollowed  = 2
	// leasesWithin bounds asking etcd for the leases, which may be what is broken.
	leasesWithin = 300 * time.Millisecond
)

// Follow sends one marked echo from a pod or a node to another and follows it hop by hop. What it found
// out is recorded. That the echo was lost is no error.
func (r *Recorder) Follow(ctx context.Context, from, to string) (follow.Trace, error) {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	path := follow.Path{Switch: r.c.Switch().NetNS(), Leases: r.leasesForPackets(ctx)}
	var err error
	if path.From, err = r.end(from); err != nil {
		return follow.Trace{}, err
	}
	if path.To, err = r.end(to); err != nil {
		return follow.Trace{}, err
	}
	for _, n := range r.c.AllNodes() {
		device := ""
		if n.HasDevice() {
			device = n.Device()
		}
		path.Nodes = append(path.Nodes, follow.Node{
			Name: n.Name(), Addr: n.Addr(), Bridge: node.Bridge, Device: device, Uplink: node.Uplink,
			Port: n.Name(), NS: n.NetNS(),
		})
	}
	trace, err := follow.Follow(ctx, path)
	if err != nil {
		return follow.Trace{}, err
	}
	r.rec.Write(record.Event{Kind: record.KindTrace, Trace: traceEvent(trace)})
	return trace, nil
}

// end finds a pod or a node by name.
func (r *Recorder) end(name string) (follow.End, error) {
	for _, p := range r.c.Pods() {
		if p.Name == name {
			return follow.End{
				Name: name, Addr: p.Addr(), Node: p.Machine.Name(), Device: pod.IfName, NS: p.NetNS,
			}, nil
		}
	}
	n, err := r.c.Node(name)
	if err != nil {
		return follow.End{}, fmt.Errorf("follow a packet: %q is no pod, and %w", name, err)
	}
	return follow.End{Name: name, Addr: n.Addr(), Node: name}, nil
}

// traceEvent is what the record keeps of a trace.
func traceEvent(t follow.Trace) *record.Trace {
	e := &record.Trace{From: t.From, To: t.To, Sentence: t.Sentence, Cause: string(t.Cause)}
	for _, h := range t.Hops {
		hop := record.Hop{Node: h.Node, Device: h.Device, Direction: h.Direction, Seen: h.Seen}
		if h.Seen {
			hop.At = record.At(h.At)
		}
		e.Hops = append(e.Hops, hop)
	}
	return e
}

// leasesForPackets returns the leases that there are; when etcd, which has them, does not answer, those
// that it had last.
func (r *Recorder) leasesForPackets(ctx context.Context) []cluster.Lease {
	ctx, cancel := context.WithTimeout(ctx, leasesWithin)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c.Control().Running() || r.c.Lacks(driver.FeatureKeys) != nil {
		if all, err := r.c.Leases(ctx); err == nil {
			r.leases = all
			return all
		}
	}
	if known := r.keys.leases(); len(known) > 0 {
		return known
	}
	return r.leases // of agents whose keys are not watched: those of etcd's v2 API
}

// FollowWrong follows a packet of some of the pairs that should reach each other and do not: those of the
// expectation that failed last, or else those that do not answer now. It takes seconds, so it is for a
// scenario that has failed and not for each try of one that may yet succeed. The packets are left in dir as
// trace-<scenario>-<n>.pcapng; "" for nowhere.
func (r *Recorder) FollowWrong(ctx context.Context, dir, scenario string) ([]follow.Trace, error) {
	wrong := r.c.Unreached()
	if len(wrong) == 0 {
		reach, err := r.c.AskMesh(ctx)
		if err != nil {
			return nil, err
		}
		wrong = cluster.Missed(reach)
	}
	var traces []follow.Trace
	var errs []error
	for _, pair := range wrong[:min(len(wrong), maxFollowed)] {
		trace, err := r.Follow(ctx, pair.From, pair.To)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		traces = append(traces, trace)
		errs = append(errs, writePackets(trace, dir, scenario))
	}
	return traces, errors.Join(errs...)
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._]+`)

// writePackets leaves the packets of a trace in a folder, under a name that is not taken.
func writePackets(t follow.Trace, dir, scenario string) error {
	if dir == "" {
		return nil
	}
	const longest = 120 // of a name, which has 255 bytes at most
	name := strings.Trim(notInNames.ReplaceAllString(scenario, "-"), "-")
	name = name[:min(len(name), longest)]
	for n := 1; ; n++ {
		file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("trace-%s-%d.pcapng", name, n)),
			os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("keep the followed packet: %w", err)
		}
		return errors.Join(t.WritePcapng(file), file.Close())
	}
}
