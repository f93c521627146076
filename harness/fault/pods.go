package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/pod"
)

// PodsVanished takes the network namespaces of a node's pods away without CNI DEL, as kill -9 of everything
// does. The heal makes them anew as a container runtime would: DEL, then ADD.
type PodsVanished struct{ Node string }

// Name implements Fault.
func (f PodsVanished) Name() string { return "pods on " + f.Node + " vanished without DEL" }

// Identity implements Fault.
func (f PodsVanished) Identity() Identity { return at("pods-vanish", f.Node) }

// Inject implements Fault. The proof is that their namespaces cannot be opened any more.
func (f PodsVanished) Inject(_ context.Context, w *Injection) error {
	pods := w.PodsOn(f.Node)
	if len(pods) == 0 {
		return fmt.Errorf("%w: there is no pod on %s", ErrNotProven, f.Node)
	}
	gone := slices.Clone(pods)
	w.OnHeal(func(ctx context.Context) error { return makeAnew(ctx, w, &gone) })
	for _, p := range pods {
		w.ForgetPod(p)
		if err := p.Vanish(); err != nil {
			return err
		}
		ns, err := p.Machine.PodNetNS(p.Name)
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: the namespace of pod %s: %w", errors.Join(ErrNotProven, err), p.Name, ns.Close())
		}
	}
	return nil
}

// DelWithoutDelegate runs CNI DEL of a node's first pod while the plugin that it delegates to is missing, as
// in the middle of an upgrade of the plugins. The heal runs DEL with all plugins, then ADD.
type DelWithoutDelegate struct{ Node string }

// Name implements Fault.
func (f DelWithoutDelegate) Name() string { return "CNI DEL on " + f.Node + " without the delegate" }

// Identity implements Fault.
func (f DelWithoutDelegate) Identity() Identity { return at("del-without-delegate", f.Node) }

// Inject implements Fault. The proof is that DEL failed, and named what it did not find.
func (f DelWithoutDelegate) Inject(ctx context.Context, w *Injection) error {
	pods := w.PodsOn(f.Node)
	if len(pods) == 0 {
		return fmt.Errorf("%w: there is no pod on %s", ErrNotProven, f.Node)
	}
	p := pods[0]
	left := []*pod.Pod{p}
	w.OnHeal(func(ctx context.Context) error { return makeAnew(ctx, w, &left) })
	w.ForgetPod(p)
	err := p.DelWithout(ctx, "bridge")
	if err == nil {
		return fmt.Errorf("%w: DEL of pod %s did without", ErrNotProven, p.Name)
	}
	if !strings.Contains(err.Error(), "bridge") {
		return fmt.Errorf("%w: DEL of pod %s failed for another reason: %w", ErrNotProven, p.Name, err)
	}
	return nil
}

// AddStorm makes many pods at once on one node; the heal takes them down.
type AddStorm struct {
	Node string
	Pods int
}

// Name implements Fault.
func (f AddStorm) Name() string { return fmt.Sprintf("%d pods at once on %s", f.Pods, f.Node) }

// Identity implements Fault.
func (f AddStorm) Identity() Identity { return at("add-storm", f.Node).with("pods", f.Pods) }

// Inject implements Fault. The proof is that every ADD has answered, with addresses that differ. One that
// fails is the overlay's failure, and no lack of proof.
func (f AddStorm) Inject(ctx context.Context, w *Injection) error {
	if _, err := w.Machine(f.Node); err != nil {
		return err
	}
	made := make([]*pod.Pod, f.Pods)
	w.OnHeal(func(ctx context.Context) error {
		for i, p := range made {
			if p == nil {
				continue
			}
			if !p.Machine.On() {
				return fmt.Errorf("%s is switched off", f.Node)
			}
			// One that a reboot has taken may have been made anew under its name.
			for _, q := range w.PodsOn(f.Node) {
				if q.Name == p.Name {
					p = q
				}
			}
			if err := w.DelPod(ctx, p); err != nil {
				return err
			}
			made[i] = nil
		}
		return nil
	})
	storm, stormCtx := errgroup.WithContext(ctx)
	for i := range f.Pods {
		storm.Go(func() (err error) {
			made[i], err = w.AddPod(stormCtx, f.Node, fmt.Sprintf("%s-storm%d", f.Node, i+1))
			return err
		})
	}
	if err := storm.Wait(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, p := range made {
		addr := p.Addr().String()
		if seen[addr] {
			return fmt.Errorf("two pods on %s have the address %s", f.Node, addr)
		}
		seen[addr] = true
	}
	return nil
}
