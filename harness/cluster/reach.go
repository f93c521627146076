package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/wait"
	"github.com/nemesh/nemesh/reports/record"
)

// Expectation is whether one endpoint of the mesh, a pod or a node, should reach a pod.
type Expectation struct {
	From, To string
	Want     bool
}

// Each builds the expectation of every pair of two sets of pods, in both directions.
func Each(a, b []*pod.Pod, want bool) []Expectation {
	var all []Expectation
	for _, from := range a {
		for _, to := range b {
			if from != to {
				all = append(all, Expectation{from.Name, to.Name, want}, Expectation{to.Name, from.Name, want})
			}
		}
	}
	return all
}

// echoes is how many are sent to find out whether a pair that may never have talked does: with the interval
// of the mesh, they cover the second that the kernel takes to give up on an address nobody answers for.
const echoes = 3

// UnreachableError is the failure of expectations: what was expected beside what was.
type UnreachableError struct {
	Reach []record.Reach
	// Err is why asking ended before the time was over; nil if it did not.
	Err error
}

// Unwrap returns Err.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Error shows both as two aligned tables with the wrong pairs marked.
func (e *UnreachableError) Error() string {
	text := "reachability is not as expected\n" + record.ReachTable(e.Reach)
	if e.Err != nil {
		text += "\n" + e.Err.Error()
	}
	return text
}

// reachWithin bounds waiting until pairs answer as expected. It covers what a pair that meets for the first
// time may need: three requests for a neighbour, a second apart (net/core/neighbour.c), and the second in
// which an IPv6 address is found unique (RFC 4862, 5.4).
const reachWithin = 10 * time.Second

// Expect waits until every pair is as expected: each round asks those that are not yet. A pair that should
// get an answer must get one to every echo of a round, and one that should not must get none, so what the
// first round loses to neighbour resolution is not counted. The error is an *UnreachableError with the last
// answer of each pair.
func (c *Cluster) Expect(ctx context.Context, wanted ...Expectation) error {
	c.mu.Lock()
	for _, w := range wanted {
		c.wanted[probe.Pair{From: w.From, To: w.To}] = w.Want
	}
	c.unreached = nil
	c.mu.Unlock()
	all := make(map[probe.Pair]record.Reach, len(wanted))
	ask := wanted
	err := wait.Within(ctx, reachWithin, c.opts.ProbeInterval, func(ctx context.Context) error {
		answers, err := c.askPairs(ctx, ask)
		switch {
		case err != nil && ctx.Err() == nil:
			return wait.GiveUp(err)
		case err != nil:
			return err
		}
		ask = nil
		for _, r := range answers {
			all[probe.Pair{From: r.From, To: r.To}] = r
			if r.Want != r.Got {
				ask = append(ask, Expectation{From: r.From, To: r.To, Want: r.Want})
			}
		}
		if len(ask) > 0 {
			return errNotAsExpected
		}
		return nil
	})
	reach := make([]record.Reach, 0, len(all))
	for _, w := range wanted {
		if r, asked := all[probe.Pair{From: w.From, To: w.To}]; asked {
			reach = append(reach, r)
		}
	}
	if len(reach) > 0 {
		c.record.Write(record.Event{Kind: record.KindReach, Reach: reach})
	}
	if err == nil || !slices.ContainsFunc(reach, func(r record.Reach) bool { return r.Want != r.Got }) {
		return err // with no pair wrong, none could be asked
	}
	c.mu.Lock()
	c.unreached = Missed(reach)
	c.mu.Unlock()
	if errors.Is(err, errNotAsExpected) {
		err = nil // which the tables say
	}
	return &UnreachableError{Reach: reach, Err: err}
}

var errNotAsExpected = errors.New("some pairs are not as expected")

// AskMesh asks every pair of the mesh once, and records and returns the answers beside what was expected of
// the pair last, for a reader who wants to know how far a failure goes.
func (c *Cluster) AskMesh(ctx context.Context) ([]record.Reach, error) {
	var all []Expectation
	for _, p := range c.mesh.Report().Pairs {
		c.mu.Lock()
		want, known := c.wanted[probe.Pair{From: p.From, To: p.To}]
		c.mu.Unlock()
		all = append(all, Expectation{From: p.From, To: p.To, Want: want || !known})
	}
	reach, err := c.askPairs(ctx, all)
	if err != nil {
		return nil, err
	}
	c.record.Write(record.Event{Kind: record.KindReach, When: record.AtFail, Reach: reach})
	return reach, nil
}

// askPairs asks each pair once and returns the answers beside what is expected.
func (c *Cluster) askPairs(ctx context.Context, wanted []Expectation) ([]record.Reach, error) {
	reach := make([]record.Reach, len(wanted))
	asking, askCtx := errgroup.WithContext(ctx)
	for i, w := range wanted {
		asking.Go(func() error {
			a, err := c.mesh.Ask(askCtx, w.From, w.To, echoes)
			if err != nil {
				return err
			}
			got := a.Reached()
			if w.Want {
				got = a.Lost == 0
			}
			reach[i] = record.Reach{From: w.From, To: w.To, Want: w.Want, Got: got, Sent: a.Sent, Lost: a.Lost}
			return nil
		})
	}
	return reach, asking.Wait()
}

// Unreached lists the pairs that failed the last expectation.
func (c *Cluster) Unreached() []probe.Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.unreached)
}

// Missed lists the pairs that should have got an answer and did not.
func Missed(reach []record.Reach) []probe.Pair {
	var pairs []probe.Pair
	for _, r := range reach {
		if r.Want && !r.Got {
			pairs = append(pairs, probe.Pair{From: r.From, To: r.To})
		}
	}
	return pairs
}
