// Package probe pings through the overlay and counts what is lost: by a mesh of pairs that ping all the
// time, and by single questions for pairs that have not talked yet.
//
// Echoes are ICMP over raw sockets, one in each network namespace. Each echo is numbered. Its round trip is
// timed by the kernel's receive timestamp. An echo without an answer within the time-out is lost. Before an
// echo counts as lost its socket is read, so a harness that reads late loses nothing. Echoes that a harness
// sends too late are counted apart (Report.Skipped).
package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netns"
)

// Options tune a mesh.
type Options struct {
	// Interval is the time between two echoes of a pair. The default is 10 ms.
	Interval time.Duration
	// Timeout is the time after which an echo without an answer is lost. The default is 1 s.
	Timeout time.Duration
}

// slack is how much longer than the time-out a decision waits for answers that the kernel has already
// received.
const slack = 300 * time.Millisecond

// Endpoint is one end of a pair: a pod, or a node itself.
type Endpoint struct {
	Name string
	// Node is the name of the node on which it is.
	Node string
	NS   netns.NsHandle
	Addr netip.Addr
}

// Pair is who pings whom, by name.
type Pair struct{ From, To string }

// Mesh pings until it is closed. Its methods may be called from several goroutines.
type Mesh struct {
	opts  Options
	nonce uint64
	stop  context.CancelFunc
	wake  chan struct{} // a pair has been added
	done  sync.WaitGroup

	mu        sync.Mutex
	endpoints map[string]*endpoint
	pairs     []*pair
	byID      map[uint32]*pair
	nextID    uint32
	errors    map[errorKey]*ICMPError
	skipped   uint64
}

// pair is a pair with its state. A stopped pair is kept, because it is part of the report.
type pair struct {
	Pair
	id     uint32
	from   *endpoint
	to     *endpoint
	track  track
	due    time.Time
	active bool
	asked  bool // by Ask: not part of the report
}

// ICMPError is an ICMP error message that an endpoint has received, such as host unreachable.
type ICMPError struct {
	// At is the endpoint that received it, Reporter the address that sent it.
	At       string
	Reporter netip.Addr
	// Type and Code are those of RFC 792: 3/1 is host unreachable.
	Type, Code int
	// Source and Destination are those of the packet that could not be delivered.
	Source, Destination netip.Addr
	First, Last         time.Time
	Count               uint64
}

type errorKey struct {
	at                string
	reporter, src, to netip.Addr
	kind, code        int
}

// NewMesh starts a mesh without pairs.
func NewMesh(opts Options) *Mesh {
	if opts.Interval <= 0 {
		opts.Interval = 10 * time.Millisecond
	}
	if opts.Timeout <= 0 {
		opts.Timeout = time.Second
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	ctx, stop := context.WithCancel(context.Background())
	m := &Mesh{
		opts: opts, nonce: binary.BigEndian.Uint64(raw[:]), stop: stop, wake: make(chan struct{}, 1),
		endpoints: map[string]*endpoint{}, byID: map[uint32]*pair{}, errors: map[errorKey]*ICMPError{},
	}
	m.done.Go(func() { m.send(ctx) })
	return m
}

// Add opens the socket of an endpoint. The endpoint's namespace may be closed afterwards: the socket keeps
// it alive.
func (m *Mesh) Add(e Endpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.endpoints[e.Name]; taken {
		return fmt.Errorf("endpoint %s is in the mesh already", e.Name)
	}
	if e.Node == "" {
		return fmt.Errorf("endpoint %s is on no node: set Endpoint.Node, which its reports name", e.Name)
	}
	end, err := open(e)
	if err != nil {
		return err
	}
	m.endpoints[e.Name] = end
	m.done.Go(func() { end.receive(m) })
	return nil
}

// Has reports whether an endpoint of that name is in the mesh.
func (m *Mesh) Has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, there := m.endpoints[name]
	return there
}

// Remove stops an endpoint's pairs and closes its socket. The pairs stay in the report.
func (m *Mesh) Remove(name string) {
	m.mu.Lock()
	end, ok := m.endpoints[name]
	for _, p := range m.pairs {
		if ok && (p.From == name || p.To == name) {
			p.active = false
		}
	}
	delete(m.endpoints, name)
	m.mu.Unlock() // closing waits for a reader, who may wait for the lock
	if ok {
		_ = end.conn.Close()
	}
}

// Probe starts a pair. A pair that runs already is not an error.
func (m *Mesh) Probe(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pairs {
		if p.From == from && p.To == to && p.active && !p.asked {
			return nil
		}
	}
	_, err := m.newPair(from, to, false)
	return err
}

func (m *Mesh) newPair(from, to string, asked bool) (*pair, error) {
	source, ok := m.endpoints[from]
	target, ok2 := m.endpoints[to]
	if !ok || !ok2 {
		return nil, fmt.Errorf("probe %s → %s: not both are in the mesh", from, to)
	}
	m.nextID++
	// Pairs are spread over the interval, so that the load is even.
	phase := time.Duration(m.nextID) * 1_618_034 % m.opts.Interval
	p := &pair{
		Pair: Pair{from, to}, id: m.nextID, from: source, to: target, active: true, asked: asked,
		due:   time.Now().Add(phase),
		track: track{interval: m.opts.Interval, timeout: m.opts.Timeout},
	}
	m.pairs = append(m.pairs, p)
	m.byID[p.id] = p
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return p, nil
}

// Stop stops a pair. It stays in the report.
func (m *Mesh) Stop(from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pairs {
		if p.From == from && p.To == to {
			p.active = false
		}
	}
}

// send is the one goroutine that sends. It wakes when an echo is due, sends all that are due within a grain,
// and sleeps while there is nothing to send or to decide. It does not wake for each echo, because one
// wake-up of a Go program costs as much as some echoes (runtime/proc.go, sysmon).
func (m *Mesh) send(ctx context.Context) {
	grain := min(5*time.Millisecond, m.opts.Interval/4)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.wake:
		}
		timer.Reset(max(grain, time.Until(m.round())))
	}
}

// idle is how often echoes are decided while none is sent.
const idle = 50 * time.Millisecond

// round sends the echoes that are due and decides those that can be decided. It returns the time of the next
// round.
func (m *Mesh) round() time.Time {
	decide := m.readOverdue()
	m.mu.Lock()
	defer m.mu.Unlock()
	next := time.Now().Add(time.Hour)
	for _, p := range m.pairs {
		now := time.Now()
		m.sendDue(p, now)
		p.track.settle(decide)
		switch {
		case p.active && p.due.Before(next):
			next = p.due
		case len(p.track.open) > 0 && now.Add(idle).Before(next):
			next = now.Add(idle)
		}
	}
	return next
}

// readOverdue reads the sockets at which an answer is overdue. It returns a time: every answer to echoes
// that were sent a time-out before it has been counted, so these echoes can be decided.
func (m *Mesh) readOverdue() time.Time {
	decide := time.Now().Add(-slack)
	overdue := map[*endpoint]bool{}
	m.mu.Lock()
	for _, p := range m.pairs {
		if p.track.overdue(decide) {
			overdue[p.from] = true
		}
	}
	m.mu.Unlock() // it is taken again for each answer
	for e := range overdue {
		e.catchUp(m)
	}
	return decide
}

func (m *Mesh) sendDue(p *pair, now time.Time) {
	if !p.active || now.Before(p.due) {
		return
	}
	// A sender that woke late sends one echo and counts those that it could not send in time.
	for p.due = p.due.Add(m.opts.Interval); !now.Before(p.due); p.due = p.due.Add(m.opts.Interval) {
		m.skipped++
	}
	m.sendNow(p, now)
}

func (m *Mesh) sendNow(p *pair, now time.Time) {
	seq := p.track.send(now)
	if err := p.from.echo(m.nonce, p.id, seq, p.to.addr); err != nil {
		p.track.refused(err)
	}
	p.track.left(time.Now())
}

// replied is called by receivers.
func (m *Mesh) replied(nonce uint64, id, seq uint32, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if nonce != m.nonce {
		return
	}
	if p, ok := m.byID[id]; ok {
		p.track.reply(seq, at)
	}
}

func (m *Mesh) reported(e ICMPError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := errorKey{e.At, e.Reporter, e.Source, e.Destination, e.Type, e.Code}
	if known, ok := m.errors[key]; ok {
		known.Count++
		known.Last = e.Last
		return
	}
	e.Count = 1
	m.errors[key] = &e
}

// Answer is the result of Ask.
type Answer struct {
	Pair
	Sent, Lost uint64
	RTT        RTT
}

// Reached reports whether any echo was answered.
func (a Answer) Reached() bool { return a.Lost < a.Sent }

// Ask sends count echoes of a pair, one each interval, and returns when all are answered or lost. The pair
// need not be part of the mesh's pairs.
func (m *Mesh) Ask(ctx context.Context, from, to string, count int) (Answer, error) {
	m.mu.Lock()
	p, err := m.newPair(from, to, true)
	if err == nil {
		p.active = false // sent here, not by the sender
	}
	m.mu.Unlock()
	if err != nil {
		return Answer{}, err
	}
	defer m.forget(p)
	tick := time.NewTicker(m.opts.Interval)
	defer tick.Stop()
	for sent := 0; ; {
		decide := m.readOverdue()
		m.mu.Lock()
		if sent < count {
			m.sendNow(p, time.Now())
			sent++
		}
		p.track.settle(decide)
		decided := sent == count && len(p.track.open) == 0
		answer := Answer{Pair: p.Pair, Sent: p.track.sent, Lost: p.track.lost, RTT: p.track.rtt}
		m.mu.Unlock()
		if decided {
			return answer, nil
		}
		select {
		case <-ctx.Done():
			return Answer{}, fmt.Errorf("ask %s → %s: %w", from, to, ctx.Err())
		case <-tick.C:
		}
	}
}

func (m *Mesh) forget(p *pair) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byID, p.id)
	m.pairs = slices.DeleteFunc(m.pairs, func(q *pair) bool { return q == p })
}

// Report is what a mesh has measured so far.
type Report struct {
	// Pairs are sorted by name.
	Pairs []PairReport
	// Errors are the ICMP errors that endpoints have received.
	Errors []ICMPError
	// Skipped counts echoes that were not sent because the harness itself was late. They are not lost.
	Skipped uint64
}

// Report returns what the mesh has measured. Echoes that are not decided yet are not in it.
func (m *Mesh) Report() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Report{Skipped: m.skipped}
	for _, p := range m.pairs {
		if !p.asked {
			r.Pairs = append(r.Pairs, p.report())
		}
	}
	for _, e := range m.errors {
		r.Errors = append(r.Errors, *e)
	}
	slices.SortFunc(r.Pairs, func(a, b PairReport) int {
		return strings.Compare(a.From+"\x00"+a.To, b.From+"\x00"+b.To)
	})
	slices.SortFunc(r.Errors, func(a, b ICMPError) int { return a.First.Compare(b.First) })
	return r
}

func (p *pair) report() PairReport {
	r := p.track.report(p.From, p.To)
	r.FromNode, r.ToNode, r.IPv6 = p.from.node, p.to.node, p.to.addr.Is6()
	return r
}

// Settle waits until every echo that was sent before the call is answered or lost, and returns the report.
func (m *Mesh) Settle(ctx context.Context) (Report, error) {
	until := time.Now()
	tick := time.NewTicker(m.opts.Interval)
	defer tick.Stop()
	for !m.decided(until) {
		select {
		case <-ctx.Done():
			return Report{}, fmt.Errorf("wait for the last echoes: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return m.Report(), nil
}

func (m *Mesh) decided(until time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pairs {
		if len(p.track.open) > 0 && p.track.open[0].at.Before(until) {
			return false
		}
	}
	return true
}

// Close ends all pairs and closes the sockets.
func (m *Mesh) Close() {
	m.stop()
	m.mu.Lock()
	open := slices.Collect(maps.Values(m.endpoints))
	m.mu.Unlock() // closing waits for a reader, who may wait for the lock
	for _, e := range open {
		_ = e.conn.Close()
	}
	m.done.Wait()
}

// Lost returns how many echoes of the pairs that match were lost and sent. nil matches all pairs.
func (r Report) Lost(match func(PairReport) bool) (lost, sent uint64) {
	for _, p := range r.Pairs {
		if match == nil || match(p) {
			lost += p.Lost
			sent += p.Sent
		}
	}
	return lost, sent
}

// Pair returns the report of one pair.
func (r Report) Pair(from, to string) (PairReport, error) {
	for _, p := range r.Pairs {
		if p.From == from && p.To == to {
			return p, nil
		}
	}
	return PairReport{}, errors.New("no pair " + from + " → " + to + " in the report")
}

// Longest returns the length of the longest outage of any pair.
func (r Report) Longest() time.Duration {
	var longest time.Duration
	for _, p := range r.Pairs {
		longest = max(longest, p.Longest())
	}
	return longest
}

// Recovery returns how long after t the last pair worked again. It is false while a pair does not work.
func (r Report) Recovery(t time.Time) (time.Duration, bool) {
	var slowest time.Duration
	for _, p := range r.Pairs {
		d, ok := p.Recovery(t)
		if !ok {
			return 0, false
		}
		slowest = max(slowest, d)
	}
	return slowest, true
}
