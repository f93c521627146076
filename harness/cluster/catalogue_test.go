package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/wait"
)

// settles bounds how long a world may take to be as before, once healed. On an idle machine a second is
// enough.
const settles = 30 * time.Second

// healthy reports, as an error, what is not as it was in a healthy world: agents that do not run or do not
// know each other, nodes without a lease, pods that do not answer, or kernels that hold something else.
func healthy(ctx context.Context, c *cluster.Cluster, before map[string][]string) error {
	for _, name := range c.Nodes() {
		agent, err := c.Agent(name)
		if err != nil {
			return err
		}
		if !agent.Running() {
			return agent.Unexpected("while all should be well")
		}
		now, err := c.DataPlane(name)
		if err != nil {
			return err
		}
		if want, ok := before[name]; ok && !slices.Equal(now, want) {
			return fmt.Errorf("%s holds\n  %s\nand held\n  %s", name, strings.Join(now, "\n  "),
				strings.Join(want, "\n  "))
		}
		key, err := c.LeaseOf(ctx, name)
		if err == nil && key == "" {
			err = fmt.Errorf("%s has no lease", name)
		}
		if err != nil {
			return err
		}
	}
	if pods := len(c.Pods()); pods != len(c.Nodes()) {
		return fmt.Errorf("%d pods on %d nodes", pods, len(c.Nodes()))
	}
	return c.Expect(ctx, cluster.Each(c.Pods(), c.Pods(), true)...)
}

// becomesHealthy waits until the world is as before.
func becomesHealthy(t *testing.T, c *cluster.Cluster, before map[string][]string) {
	t.Helper()
	err := wait.Within(t.Context(), settles, 20*time.Millisecond, func(ctx context.Context) error {
		return healthy(ctx, c, before)
	})
	if err != nil {
		t.Fatalf("not as before %s after the heal: %v", settles, err)
	}
}

// dataPlanes is what every kernel holds. The MAC and index of what is made anew are the same, or told as
// changed.
func dataPlanes(t *testing.T, c *cluster.Cluster) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, name := range c.Nodes() {
		lines, err := c.DataPlane(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = lines
	}
	return all
}

// worlds are the kinds of world that it takes to have every fault once.
var worlds = []struct {
	name string
	opts cluster.Options
	// only are the faults that need this kind; none stands for all others.
	only []string
}{
	{"plain", cluster.Options{}, nil},
	{"secure", cluster.Options{Nodes: 2, EtcdMembers: 3, EtcdTLS: true}, []string{
		"etcd-leader-change", "etcd-member-loss", "etcd-quorum-loss", "etcd-cert-expired", "etcd-cert-replaced",
		"client-cert-expired", "etcd-permission-removed", "etcd-write-removed",
	}},
	{"short leases", cluster.Options{Nodes: 2, LeaseTTL: 2 * time.Second}, []string{"lease-expire"}},
	{"to be lost", cluster.Options{Nodes: 3}, []string{"subnet-taken"}},
}

// Every fault of the catalogue can be had, proved and healed, and the world is as before.
func TestEveryFaultOnce(t *testing.T) {
	var special []string
	for _, w := range worlds {
		special = append(special, w.only...)
	}
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			opts := w.opts
			opts.Agent, opts.Resync = ours(), time.Second
			c := world(t, opts)
			becomesHealthy(t, c, nil)
			before := dataPlanes(t, c)
			node := c.Nodes()[len(c.Nodes())-1]
			for _, e := range fault.Catalogue() {
				if slices.Contains(w.only, e.ID) || w.only == nil && !slices.Contains(special, e.ID) {
					t.Run(e.ID, func(t *testing.T) { once(t, c, e, node, before) })
				}
			}
		})
	}
}

func once(t *testing.T, c *cluster.Cluster, e fault.Entry, node string, before map[string][]string) {
	began := time.Now()
	args := map[string]string{}
	if e.ID == "key-delete" {
		args["key"] = "owners/" + must(c.LeaseOf(t.Context(), node))(t)
	}
	f, err := e.New(c, node, args)
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := f.(fault.Limited); ok {
		if err := l.Available(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Inject(t.Context(), f); err != nil {
		t.Errorf("inject: %v", err)
	}
	proved := time.Since(began)
	if _, err := c.Heal(t.Context()); err != nil {
		t.Errorf("heal: %v", err)
	}
	if e.Lasting {
		before = nil
	}
	if e.ID == "subnet-taken" { // its pods are in a subnet that is another's now
		if err := c.WaitConverged(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	if e.ID == "file-delete" { // an agent writes it when it starts
		if err := c.Inject(t.Context(), fault.AgentRestart{Node: node}); err != nil {
			t.Error(err)
		}
		_, _ = c.Heal(t.Context())
	}
	becomesHealthy(t, c, before)
	t.Logf("%s: proved after %s, as before after %s", f.Name(), proved.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond))
}

// must fails the test on an error.
func must(value string, err error) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// Faults overlap and are healed in any order, and the world is as before. One that cannot be proved on top
// of others, such as a key deleted while etcd is away, says so in time, and its heal does no harm.
func TestOverlappingFaultsHealInAnyOrder(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := world(t, cluster.Options{Agent: ours(), Nodes: 3, Resync: time.Second})
	becomesHealthy(t, c, nil)
	before := dataPlanes(t, c)
	var all []fault.Entry
	for _, e := range fault.Catalogue() {
		if e.Lasting || e.ID == "lease-expire" {
			continue
		}
		if f, err := e.New(c, "node01", nil); err == nil {
			if l, ok := f.(fault.Limited); !ok || l.Available(c) == nil {
				all = append(all, e)
			}
		}
	}
	for range rounds {
		var faults []fault.Fault
		var names []string
		for range 2 + random.IntN(2) {
			e := all[random.IntN(len(all))]
			f, err := e.New(c, c.Nodes()[random.IntN(3)], nil)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(names, f.Name()) {
				continue
			}
			faults, names = append(faults, f), append(names, f.Name())
			if err := c.Inject(t.Context(), f); err != nil && !errors.Is(err, fault.ErrNotProven) {
				t.Logf("%s, on top of the others: %v", f.Name(), err)
			}
		}
		random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		var order []string
		for _, f := range faults {
			order = append(order, f.Name())
			_, err := c.HealOne(t.Context(), f)
			if err != nil && !strings.Contains(err.Error(), "it is not broken") {
				t.Errorf("injected %q, heal %q: %v", names, f.Name(), err)
			}
		}
		t.Logf("injected %q, healed %q", names, order)
		becomesHealthy(t, c, before)
		if left := c.Summary().Active; len(left) > 0 {
			t.Errorf("left to heal: %q", left)
		}
	}
}
