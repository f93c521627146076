package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/harness/wait"
	"github.com/nemesh/nemesh/reports/record"
)

// AddPod makes a pod by CNI ADD. It takes part in the mesh only when it is asked for there: until then
// nobody has met it.
func (c *Cluster) AddPod(ctx context.Context, nodeName, podName string) (*pod.Pod, error) {
	n, err := c.Node(nodeName)
	if err != nil {
		return nil, err
	}
	p, err := pod.Add(ctx, n.Machine, n.Network(), podName)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.pods = append(c.pods, p)
	slices.SortFunc(c.pods, func(a, b *pod.Pod) int { return strings.Compare(a.Name, b.Name) })
	c.mu.Unlock()
	c.notePod(p, false)
	return p, c.joinMesh(p)
}

// Network is the CNI network in which the node's pods are.
func (n *Node) Network() pod.Network {
	confList, binDirs := n.driver.CNI()
	return pod.Network{ConfList: confList, BinDirs: binDirs}
}

// VanishPod takes a pod away without telling CNI, as a crash does.
func (c *Cluster) VanishPod(p *pod.Pod) error {
	c.ForgetPod(p)
	return p.Vanish()
}

// DelPod takes a pod down by CNI DEL.
func (c *Cluster) DelPod(ctx context.Context, p *pod.Pod) error {
	if err := p.Del(ctx); err != nil {
		return err
	}
	c.ForgetPod(p)
	return nil
}

// CollectGarbage frees, by CNI GC, what containers on a node had that are not pods any more, as a container
// runtime does after a reboot.
func (c *Cluster) CollectGarbage(ctx context.Context, nodeName string) error {
	n, err := c.Node(nodeName)
	if err != nil {
		return err
	}
	return pod.GC(ctx, n.Machine, n.Network(), c.PodsOn(nodeName)...)
}

// ForgetPod has the cluster and the mesh forget a pod that is gone.
func (c *Cluster) ForgetPod(p *pod.Pod) {
	c.mesh.Remove(p.Name)
	c.mesh.Remove(Over6(p.Name))
	c.notePod(p, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = slices.DeleteFunc(c.pods, func(q *pod.Pod) bool { return q == p })
}

// Pods lists the pods, by name.
func (c *Cluster) Pods() []*pod.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pods)
}

// PodsOn lists the pods of one node, by name.
func (c *Cluster) PodsOn(node string) []*pod.Pod {
	return slices.DeleteFunc(c.Pods(), func(p *pod.Pod) bool { return p.Machine.Name() != node })
}

// StartMesh starts the mesh among all pods that there are.
func (c *Cluster) StartMesh(ctx context.Context) error { return c.StartMeshAmong(ctx, c.Pods()) }

// StartMeshAmong makes each of the pods ping every other, and every node ping those of the other nodes, and
// waits until each pair has had an answer.
func (c *Cluster) StartMeshAmong(ctx context.Context, pods []*pod.Pod) error {
	for _, n := range c.nodes {
		if c.mesh.Has(n.Name()) {
			continue
		}
		err := c.mesh.Add(probe.Endpoint{Name: n.Name(), Node: n.Name(), NS: n.NetNS(), Addr: n.Addr()})
		if err != nil {
			return err
		}
	}
	var wanted []Expectation
	for _, to := range pods {
		for _, from := range pods {
			if from != to {
				wanted = append(wanted, Expectation{From: from.Name, To: to.Name, Want: true})
				if from.Addr6().IsValid() && to.Addr6().IsValid() {
					wanted = append(wanted, Expectation{From: Over6(from.Name), To: Over6(to.Name), Want: true})
				}
			}
		}
		for _, n := range c.nodes {
			if a, err := c.Agent(n.Name()); err == nil && a.Running() && n.Machine != to.Machine {
				wanted = append(wanted, Expectation{From: n.Name(), To: to.Name, Want: true})
			}
		}
	}
	if err := c.Expect(ctx, wanted...); err != nil {
		return fmt.Errorf("the mesh does not answer: %w", err)
	}
	for _, w := range wanted {
		if err := c.mesh.Probe(w.From, w.To); err != nil {
			return err
		}
	}
	return nil
}

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
type UnreachableError struct{ Reach []record.Reach }

// Error shows both as two aligned tables with the wrong pairs marked.
func (e *UnreachableError) Error() string {
	return "reachability is not as expected\n" + record.ReachTable(e.Reach)
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
			return errors.New("some pairs are not as expected")
		}
		return nil
	})
	reach := make([]record.Reach, 0, len(all))
	for _, w := range wanted {
		if r, asked := all[probe.Pair{From: w.From, To: w.To}]; asked {
			reach = append(reach, r)
		}
	}
	c.record.Write(record.Event{Kind: record.KindReach, Reach: reach})
	if err == nil || !slices.ContainsFunc(reach, func(r record.Reach) bool { return r.Want != r.Got }) {
		return err // with no pair wrong, none could be asked
	}
	c.mu.Lock()
	c.unreached = unreached(reach)
	c.mu.Unlock()
	return &UnreachableError{Reach: reach}
}

// WriteReach asks every pair of the mesh once and records the answers beside what was expected of the pair
// last, for a reader who wants to know how far a failure goes.
func (c *Cluster) WriteReach(ctx context.Context) error {
	_, err := c.askMesh(ctx)
	return err
}

// askMesh asks every pair of the mesh once, and records and returns the answers.
func (c *Cluster) askMesh(ctx context.Context) ([]record.Reach, error) {
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
