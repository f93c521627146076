package scenarios

// One agent takes another's place on a running node, under a continuous mesh: flanneld is replaced by
// overlayd and back. Right: the device, its MAC, the subnet and the pods are adopted, and nothing is lost.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/suite"
)

// flanneldEnv names the environment variable with the path of a real flanneld.
const flanneldEnv = "NEMESH_FLANNELD"

var _ = Describe("swap", Label("kind:swap"), func() {
	// A node changes from flanneld to overlayd without being drained. Right: device, MAC, subnet and pods
	// are adopted.
	It("to overlayd adopts what flannel leaves: a device, a lease without a record, subnet.env",
		suite.Red("new-device-at-start"), func(ctx SpecContext) {
			suite.Needs(suite.FeatureState, suite.FeatureOwners)
			c := chaos.Running(ctx, suite.Options{})
			device, before := c.DeviceIdentity("node02"), subnets(c)
			// What flannel leaves is what ours leaves, less the saved state and the owner's record.
			c.Inject(ctx, suite.AgentStop{Node: "node02"},
				suite.FileDeleted{Node: "node02", Path: "/var/lib/overlayd/state.json"},
				suite.KeyDeleted{Key: "owners/" + before[1]})
			c.Heal(ctx)
			c.TalkFor(ctx, 25)
			Expect(c.DeviceIdentity("node02")).To(Equal(device), "the device was changed")
			Expect(subnets(c)).To(Equal(before))
			Expect(leasesOf(ctx, c)).To(Equal(before))
			c.ExpectFreshPods(ctx, "fresh")
			c.ExpectNothingLost(ctx)
		}, SpecTimeout(2*time.Minute))

	DescribeTable(
		"between a real flanneld and overlayd, node by node and back, loses nothing",
		Label("agent:flannel", "detect:exempt"),
		func(ctx SpecContext, backend string) {
			mine, theirs := bothAgents()
			c := chaos.Running(ctx, suite.Options{Agent: theirs, Backend: backend})
			before := subnets(c)
			round := 0
			swap := func(ctx context.Context, to suite.Driver) {
				round++
				for i, name := range c.Nodes() {
					c.Step(fmt.Sprintf("%s: %s takes over", name, to.Name()))
					device := deviceIfAny(c, name)
					killFlannel(ctx, c, name)
					Expect(c.SwapAgent(ctx, name, to)).To(Succeed())
					c.TalkFor(ctx, 25)
					Expect(deviceIfAny(c, name)).To(Equal(device), "the device was changed")
					if i == 1 {
						c.Step("etcd goes away in the middle and comes back")
						c.Inject(ctx, suite.EtcdStop{})
						c.TalkFor(ctx, 50)
						c.Heal(ctx)
					}
				}
				Expect(subnets(c)).To(Equal(before))
				Expect(leasesOf(ctx, c)).To(Equal(before))
				c.ExpectFreshPods(ctx, fmt.Sprintf("round%d", round))
			}
			swap(ctx, mine)
			swap(ctx, theirs)
			swap(ctx, mine)
			c.ExpectNothingLost(ctx)
		},
		Entry("over VXLAN", SpecTimeout(3*time.Minute), suite.BackendVXLAN),
		Entry("over host-gw", SpecTimeout(3*time.Minute), suite.BackendHostGW),
	)

	DescribeTable(
		"lets two nodes with flanneld and two with overlayd make one network",
		Label("agent:flannel", "detect:exempt"),
		func(ctx SpecContext, backend string) {
			mine, theirs := bothAgents()
			c := chaos.Running(ctx, suite.Options{
				Agent: mine, Backend: backend, Nodes: 6, Idle: []string{"node05", "node06"},
				AgentOf: map[string]suite.Driver{"node03": theirs, "node04": theirs, "node06": theirs},
			},
			)
			expectOneFormat(ctx, c)
			c.ExpectFreshPods(ctx, "fresh", "node01", "node02", "node03", "node04")

			c.Inject(ctx, suite.EtcdStop{})
			c.Step("pods are made on every node during the outage")
			c.ExpectFreshPods(ctx, "outage", "node01", "node02", "node03", "node04")
			c.TalkFor(ctx, 50)
			c.Heal(ctx)

			c.Step("one more node of each kind joins")
			for _, name := range []string{"node05", "node06"} {
				Expect(c.StartAgent(ctx, name)).To(Succeed())
			}
			Expect(c.WaitConverged(ctx)).To(Succeed())
			c.Step("one of each kind is restarted")
			c.Inject(ctx, suite.AgentRestart{Node: "node01"}, suite.AgentKill{Node: "node03"})
			c.Heal(ctx)
			c.ExpectFreshPods(ctx, "late")
			expectOneFormat(ctx, c)
			c.ExpectNothingLost(ctx)
		},
		Entry("over VXLAN", SpecTimeout(2*time.Minute), suite.BackendVXLAN),
		Entry("over host-gw", SpecTimeout(2*time.Minute), suite.BackendHostGW),
	)
})

// bothAgents returns our overlay and the real flanneld, or skips the running spec with a line where there is
// none.
func bothAgents() (mine suite.Ours, theirs suite.Flannel) {
	GinkgoHelper()
	path := os.Getenv(flanneldEnv)
	if path == "" {
		Skip("set " + flanneldEnv + " to a flanneld binary to run this")
	}
	mine = suite.OwnBuild()
	theirs = suite.Flannel{Ours: mine, Path: path}
	suite.NeedsProgram(theirs)
	return mine, theirs
}

// killFlannel ends a node's flanneld, if that is what runs there, as kill -9 does. Told to end by SIGTERM it
// may first take the routes of all its peers away, or not end at all (docs/findings.md), which would be
// counted against whoever takes its place.
func killFlannel(ctx context.Context, c *suite.Cluster, name string) {
	GinkgoHelper()
	agent, err := c.Agent(name)
	Expect(err).NotTo(HaveOccurred())
	if agent.Name() == "flanneld" {
		Expect(agent.Kill(ctx)).To(Succeed())
	}
}

// deviceIfAny is the device's index and MAC, or nothing where the backend has no device.
func deviceIfAny(c *suite.Cluster, node string) string {
	GinkgoHelper()
	if c.Options().Backend != suite.BackendVXLAN {
		return ""
	}
	return c.DeviceIdentity(node)
}

// expectOneFormat states that the leases of all nodes have the same fields, whoever wrote them.
func expectOneFormat(ctx context.Context, c *suite.Cluster) {
	GinkgoHelper()
	leases, err := c.Leases(ctx)
	Expect(err).NotTo(HaveOccurred())
	shapes := map[string][]string{}
	for _, l := range leases {
		var fields map[string]any
		Expect(json.Unmarshal([]byte(l.Value), &fields)).To(Succeed())
		shape := fmt.Sprint(slices.Sorted(maps.Keys(fields)))
		if data, ok := fields["BackendData"].(map[string]any); ok {
			shape += fmt.Sprint(slices.Sorted(maps.Keys(data)))
		}
		shapes[shape] = append(shapes[shape], l.Value)
	}
	Expect(shapes).To(HaveLen(1), "leases differ in form")
}
