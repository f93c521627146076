package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/overlay/kernel"
	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// A route that is still there when its peer is no longer saved would be nobody's after a restart under
// another network. So the kernel comes first, and a view that was not published yet is not saved.
func TestWhatIsSavedIsNotAheadOfTheKernel(t *testing.T) {
	const path = "net/ipv4/ip_forward"
	must(t, os.WriteFile("/proc/sys/"+path, []byte("0"), 0o644))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	k, err := kernel.New(kernel.Options{Log: log})
	must(t, err)
	peer := func(subnet string) lease.View {
		n, err := lease.ParseKey(subnet)
		must(t, err)
		return lease.View{Leases: []lease.Lease{{
			Subnet: n,
			Attrs:  lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.2"), BackendType: "host-gw"},
		}}}
	}
	a := &Agent{
		log: log, kernel: k, state: fresh(), noted: map[string]bool{},
		opts: Options{StateDir: t.TempDir()}, unsaved: true, shown: peer("10.5.2.0-24"), view: peer("10.5.3.0-24"),
	}
	k.Set(plan.State{Uplink: "lo", Sysctls: []plan.Sysctl{{Path: path, Value: "1"}}})
	a.save(t.Context())
	if now, err := os.ReadFile("/proc/sys/" + path); err != nil || strings.TrimSpace(string(now)) != "1" {
		t.Errorf("saved before the kernel held the plan: %q, %v", now, err)
	}
	s, err := load(a.opts.StateDir)
	must(t, err)
	if _, ok := s.Leases["10.5.2.0-24"]; !ok || len(s.Leases) != 1 {
		t.Errorf("saved is not what was published: %v", s.Leases)
	}
}

// The reconciler may end before the loop hears that it is to: what peers it knows is saved all the same, or
// the next start without etcd would take their routes away.
func TestWhatIsKnownIsSavedAtTheEndWhoeverEndsFirst(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	k, err := kernel.New(kernel.Options{Log: log})
	must(t, err)
	for range 30 { // which of the two the loop hears of first is chance
		a := &Agent{
			log: log, kernel: k, state: fresh(), noted: map[string]bool{}, unsaved: true,
			opts: Options{StateDir: t.TempDir()}, failed: make(chan error, 1),
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a.failed <- nil
		must(t, a.loop(ctx, nil))
		if a.unsaved {
			t.Fatal("what was published last is not saved")
		}
		_, err := os.Stat(filepath.Join(a.opts.StateDir, stateFile))
		must(t, err)
	}
}
