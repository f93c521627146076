package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/fault"
)

// must fails the running spec with an error.
func must(err error, what string) {
	ginkgo.GinkgoHelper()
	if err != nil {
		ginkgo.Fail(what + ": " + err.Error())
	}
}

// Step says, in Ginkgo's output and in the record, what a scenario does next.
func (c *Cluster) Step(text string) {
	ginkgo.GinkgoHelper()
	ginkgo.By(text)
	c.Cluster.Step(text)
}

// Inject applies faults, one after another. One that cannot be proved makes the spec not proven. One about
// something that the cluster's agents do not have skips it.
func (c *Cluster) Inject(ctx context.Context, faults ...Fault) {
	ginkgo.GinkgoHelper()
	for _, f := range faults {
		c.Step(f.Name())
		if err := c.Cluster.Inject(ctx, f); err != nil {
			skipLacking(err)
			if errors.Is(err, fault.ErrNotProven) {
				notProven(err)
			}
			ginkgo.Fail(err.Error())
		}
	}
}

// Heal undoes all faults, the latest first, and returns the moment at which the last was undone.
func (c *Cluster) Heal(ctx context.Context) time.Time {
	ginkgo.GinkgoHelper()
	c.Step("healed")
	at, err := c.Cluster.Heal(ctx)
	must(err, "heal")
	return at
}

// HealOne undoes one fault, leaves the others, and returns the moment at which it was undone.
func (c *Cluster) HealOne(ctx context.Context, f Fault) time.Time {
	ginkgo.GinkgoHelper()
	c.Step("healed: " + f.Name())
	at, err := c.Cluster.HealOne(ctx, f)
	must(err, "heal")
	return at
}

// Waive says that the spec means to break an invariant, by its id, and why. The record then shows what it
// broke. A waiver that was not needed is reported in the spec's output and can be told in the record (ok and
// waived).
func (c *Cluster) Waive(id, why string) {
	ginkgo.GinkgoHelper()
	must(c.checker.Waive(id, why), "waive")
}

// AddPods makes a pod by CNI ADD on every node that has had an agent, or on those that are named:
// node01-NAME and so on. It fails the spec if one cannot be made; AddPod returns the error instead.
func (c *Cluster) AddPods(ctx context.Context, name string, nodes ...string) []*Pod {
	ginkgo.GinkgoHelper()
	if len(nodes) == 0 {
		for _, n := range c.Nodes() {
			if _, err := c.Agent(n); err == nil { // others have never had a subnet
				nodes = append(nodes, n)
			}
		}
	}
	var pods []*Pod
	for _, n := range nodes {
		p, err := c.AddPod(ctx, n, fmt.Sprintf("%s-%s", n, name))
		must(err, "make a pod")
		pods = append(pods, p)
	}
	return pods
}

// StartMesh makes each of the pods, or of all if none is given, ping every other, and every node ping
// those of the other nodes, for as long as the cluster stands. It returns when each pair has had an
// answer.
func (c *Cluster) StartMesh(ctx context.Context, pods ...*Pod) {
	ginkgo.GinkgoHelper()
	must(c.Cluster.StartMesh(ctx, pods...), "start the mesh")
}

// TalkFor waits until every pair of the mesh has had n more echoes decided: answered or lost.
func (c *Cluster) TalkFor(ctx context.Context, n uint64) {
	ginkgo.GinkgoHelper()
	before := map[string]uint64{}
	for _, p := range c.Mesh().Report().Pairs {
		before[p.From+p.To] = p.Sent
	}
	gomega.Expect(before).NotTo(gomega.BeEmpty(), "the mesh has not been started")
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		for _, p := range c.Mesh().Report().Pairs {
			g.Expect(p.Sent).To(gomega.BeNumerically(">=", before[p.From+p.To]+n), p.From+" → "+p.To)
		}
	}).WithTimeout(time.Duration(n)*10*c.Options().ProbeInterval + 10*time.Second).Should(gomega.Succeed())
}

// Settled waits until every echo that was sent is answered or lost, and returns what the mesh has measured
// since it began.
func (c *Cluster) Settled(ctx context.Context) Report {
	ginkgo.GinkgoHelper()
	report, err := c.Mesh().Settle(ctx)
	must(err, "settle the mesh")
	gomega.Expect(report.Pairs).NotTo(gomega.BeEmpty(), "the mesh has not been started")
	return report
}

// ExpectReach waits until every pair answers as expected, for 10 s at most: what is lost to the first
// resolution of a neighbour does not count. The failure shows both as two tables.
func (c *Cluster) ExpectReach(ctx context.Context, wanted ...Expectation) {
	ginkgo.GinkgoHelper()
	gomega.Expect(c.Expect(ctx, wanted...)).To(gomega.Succeed())
}

// ExpectNothingLost states that no pair of the mesh has lost an echo since it began.
func (c *Cluster) ExpectNothingLost(ctx context.Context) {
	ginkgo.GinkgoHelper()
	for _, p := range c.Settled(ctx).Pairs {
		gomega.Expect(p.Lost).To(gomega.BeZero(), "%s → %s lost %d of %d, outages %s", p.From, p.To, p.Lost,
			p.Sent, p.Outages)
		gomega.Expect(p.Sent).To(gomega.BeNumerically(">", 0), "%s → %s", p.From, p.To)
	}
}

// ExpectNothingLostBut is ExpectNothingLost for the pairs that a node has no part in.
func (c *Cluster) ExpectNothingLostBut(ctx context.Context, node string) {
	ginkgo.GinkgoHelper()
	lost, sent := c.Settled(ctx).Lost(func(p PairReport) bool { return !p.On(node) })
	gomega.Expect(sent).To(gomega.BeNumerically(">", 0))
	gomega.Expect(lost).To(gomega.BeZero(), "of %d echoes of pairs that %s has no part in", sent, node)
}

// ExpectRecovered states that every pair answers again, and has from within some time after a moment. It
// asks once all that was sent is decided: an echo stays open for longer than a pair needs to lose many.
func (c *Cluster) ExpectRecovered(ctx context.Context, at time.Time, within time.Duration) {
	ginkgo.GinkgoHelper()
	c.TalkFor(ctx, uint64(within/c.Options().ProbeInterval))
	recovery, ok := c.Settled(ctx).Recovery(at)
	gomega.Expect(ok).To(gomega.BeTrue(), "a pair still does not answer")
	gomega.Expect(recovery).To(gomega.BeNumerically("<", within))
}

// ExpectRepaired states that what was done to a node just now is repaired within a second, and that no pair
// without the node has lost anything. now lists what was tampered with, before is how it was.
func (c *Cluster) ExpectRepaired(
	ctx context.Context,
	node string,
	now func() ([]string, error),
	before []string,
) {
	ginkgo.GinkgoHelper()
	at := time.Now()
	gomega.Eventually(ctx, now).WithTimeout(time.Second).WithPolling(5*time.Millisecond).
		Should(gomega.Equal(before), "what was tampered with is not put right")
	c.Figure("repaired after", time.Since(at).Seconds(), "s")
	c.ExpectRecovered(ctx, at, time.Second)
	c.ExpectNothingLostBut(ctx, node)
}

// ExpectPermanent waits until a node has neighbour and forwarding entries for all its peers, and states that
// they do not age. It skips the spec where the backend has no VXLAN device.
func (c *Cluster) ExpectPermanent(ctx context.Context, node string) {
	ginkgo.GinkgoHelper()
	c.NeedsDevice()
	permanent := gomega.And(gomega.HaveLen(len(c.Nodes())-1), gomega.HaveEach(gomega.HaveSuffix("PERMANENT")))
	lines := func(entries []Neighbour, err error) ([]string, error) {
		var all []string
		for _, e := range entries {
			all = append(all, e.String())
		}
		return all, err
	}
	gomega.Eventually(ctx, func() ([]string, error) { return lines(c.Neighbours(node)) }).
		Should(permanent, "neighbours of %s", node)
	gomega.Eventually(ctx, func() ([]string, error) { return lines(c.FDB(node)) }).
		Should(permanent, "forwarding entries of %s", node)
}

// ExpectFreshPods makes a pod on every node that has had an agent, or on those that are named, and waits
// until each reaches all others.
func (c *Cluster) ExpectFreshPods(ctx context.Context, name string, nodes ...string) {
	ginkgo.GinkgoHelper()
	c.Step("a pod is made on every node")
	c.ExpectReach(ctx, Each(c.AddPods(ctx, name, nodes...), c.Pods(), true)...)
}

// NeedsDevice skips the running spec where the agent or the backend has no VXLAN device to look at.
func (c *Cluster) NeedsDevice() {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureDevice)
	if backend := c.Options().Backend; backend != BackendVXLAN {
		ginkgo.Skip("it looks at the VXLAN device, which the backend " + backend + " has not")
	}
}
