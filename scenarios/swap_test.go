package scenarios

// One agent takes another's place on a running node, under a continuous mesh: flanneld is replaced by overlayd and
// back. Right: the device, its MAC, the subnet and the pods are adopted, and nothing is lost.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness"
	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/suite"
)

// flanneldEnv names the environment variable with the path of a real flanneld.
const flanneldEnv = "NEMESH_FLANNELD"

var _ = Describe("swap", Label("kind:swap"), func() {
	It("to overlayd adopts what flannel leaves: a device, a lease without a record, subnet.env",
		func(ctx SpecContext) {
			needs(driver.FeatureState, driver.FeatureOwners)
			c := running(ctx, harness.Options{})
			device, before := deviceOf(c, "node02"), subnets(c)
			// What flannel leaves is what ours leaves, less the saved state and the owner's record.
			suite.Inject(ctx, c, fault.AgentStop{Node: "node02"},
				fault.FileDeleted{Node: "node02", Path: "/var/lib/overlayd/state.json"},
				fault.KeyDeleted{Key: "owners/" + before[1]})
			suite.Heal(ctx, c)
			talkFor(ctx, c, 50)
			Expect(deviceOf(c, "node02")).To(Equal(device), "the device was changed")
			Expect(subnets(c)).To(Equal(before))
			Expect(leasesOf(ctx, c)).To(Equal(before))
			expectFreshPods(ctx, c, "fresh")
			expectNothingLost(ctx, c)
		}, SpecTimeout(time.Minute))

	It("between a real flanneld and overlayd, node by node and back, loses nothing", Label("agent:flannel"),
		func(ctx SpecContext) {
			path := os.Getenv(flanneldEnv)
			if path == "" {
				Skip("set " + flanneldEnv + " to a flanneld binary to run this")
			}
			if _, err := exec.LookPath("iptables"); err != nil {
				Skip("flanneld needs the iptables program: apt-get install iptables")
			}
			mine := driver.Ours{Bin: os.Getenv(build.Env)}
			theirs := driver.Flannel{Ours: mine, Path: path}
			c := running(ctx, harness.Options{Agent: theirs})
			before := subnets(c)
			round := 0
			swap := func(ctx context.Context, to driver.Driver) {
				round++
				for _, name := range c.Nodes() {
					suite.Step(c, fmt.Sprintf("%s: %s takes over", name, to.Name()))
					device := deviceOf(c, name)
					Expect(c.SwapAgent(ctx, name, to)).To(Succeed())
					talkFor(ctx, c, 50)
					Expect(deviceOf(c, name)).To(Equal(device), "the device was changed")
				}
				Expect(subnets(c)).To(Equal(before))
				Expect(leasesOf(ctx, c)).To(Equal(before))
				expectFreshPods(ctx, c, fmt.Sprintf("round%d", round))
			}
			swap(ctx, mine)
			swap(ctx, theirs)
			swap(ctx, mine)
			expectNothingLost(ctx, c)
		}, SpecTimeout(3*time.Minute))
})
