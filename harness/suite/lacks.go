package suite

import (
	"context"
	"errors"

	"github.com/onsi/ginkgo/v2"

	"github.com/nemesh/nemesh/harness/driver"
)

// The verbs here ask something of which not every agent can be asked. They skip the running spec, with one
// line, where the cluster's agents lack it.

// skipLacking skips the running spec if an error says that an agent lacks something.
func skipLacking(err error) {
	ginkgo.GinkgoHelper()
	var lacks *driver.LacksError
	if errors.As(err, &lacks) {
		ginkgo.Skip(lacks.Error())
	}
}

// Needs skips the running spec, with one line, where an agent of the cluster lacks something that it is
// about.
func (c *Cluster) Needs(features ...Feature) {
	ginkgo.GinkgoHelper()
	skipLacking(c.Lacks(features...))
}

// Has reports whether the cluster's agents have a feature.
func (c *Cluster) Has(f Feature) bool { return c.Lacks(f) == nil }

// Leases reads the subnet leases, sorted by key.
func (c *Cluster) Leases(ctx context.Context) ([]Lease, error) {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureLeases)
	return c.Cluster.Leases(ctx)
}

// LeaseOf returns the key of a node's lease, such as 10.5.3.0-24; "" if it has none.
func (c *Cluster) LeaseOf(ctx context.Context, node string) (string, error) {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureLeases)
	return c.Cluster.LeaseOf(ctx, node)
}

// SubnetOf returns the key of the subnet that a node's subnet file names, such as 10.5.3.0-24.
func (c *Cluster) SubnetOf(node string) (string, error) {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureSubnetFile)
	return c.Cluster.SubnetOf(node)
}

// SubnetFile is where the agent leaves its node's subnet, on a node.
func (c *Cluster) SubnetFile() string {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureSubnetFile)
	return c.Cluster.SubnetFile()
}

// Device is the name of the overlay's device on each node.
func (c *Cluster) Device() string {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureDevice)
	return c.Cluster.Device()
}

// KnowsOnly reports, as an error, where the first of the named nodes has more or fewer forwarding entries
// than for the others.
func (c *Cluster) KnowsOnly(names ...string) error {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureKeys)
	return c.Cluster.KnowsOnly(names...)
}

// Retire takes a node's lease and its owner's record away, as an operator does who decommissions a node
// whose agent is gone.
func (c *Cluster) Retire(ctx context.Context, node string) error {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureKeys)
	return c.Cluster.Retire(ctx, node)
}

// Configure puts a network configuration, flannel's JSON, in place of the one that is there.
func (c *Cluster) Configure(ctx context.Context, config string) error {
	ginkgo.GinkgoHelper()
	c.Needs(FeatureKeys)
	return c.Cluster.Configure(ctx, config)
}
