package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/probe"
	"github.com/nemesh/nemesh/reports/record"
)

// AddPod makes a pod by CNI ADD. It takes part in the mesh only when it is asked for there: until then
// nobody has met it.
func (c *Cluster) AddPod(ctx context.Context, nodeName, podName string) (*pod.Pod, error) {
	n, err := c.Node(nodeName)
	if err != nil {
		return nil, err
	}
	network, err := n.Network()
	if err != nil {
		return nil, err
	}
	return c.AddPodIn(ctx, nodeName, podName, network)
}

// AddPodIn is AddPod in a CNI network that is not the node's own.
func (c *Cluster) AddPodIn(ctx context.Context, nodeName, podName string, in pod.Network) (*pod.Pod, error) {
	n, err := c.Node(nodeName)
	if err != nil {
		return nil, err
	}
	p, err := pod.Add(ctx, n.Machine, in, podName)
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
func (n *Node) Network() (pod.Network, error) {
	confList, binDirs, err := driver.CNIOf(n.driver, n.Machine)
	if err != nil {
		return pod.Network{}, fmt.Errorf("find out with what pods are made on %s: %w", n.Name(), err)
	}
	return pod.Network{ConfList: confList, BinDirs: binDirs}, nil
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
	network, err := n.Network()
	if err != nil {
		return err
	}
	return pod.GC(ctx, n.Machine, network, c.PodsOn(nodeName)...)
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

// StartMesh makes each of the pods, or of all if none is given, ping every other, and every node ping
// those of the other nodes, and waits until each pair has had an answer.
func (c *Cluster) StartMesh(ctx context.Context, pods ...*pod.Pod) error {
	if len(pods) == 0 {
		pods = c.Pods()
	}
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

func (c *Cluster) notePod(p *pod.Pod, gone bool) {
	c.record.Write(record.Event{Kind: record.KindPod, Pod: &record.Pod{
		Name: p.Name, Node: p.Machine.Name(), Addr: p.Addr().String(), Gone: gone,
	}})
}
