package driver_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/node"
)

// bare is a driver that says no more than it must, and that its agent has nothing of flannel's.
type bare struct{ subnetFile, device string }

func (bare) Name() string                     { return "bare" }
func (bare) Check() error                     { return nil }
func (bare) Command(driver.Spec) node.Command { return node.Command{} }
func (b bare) SubnetFile() string             { return b.subnetFile }
func (b bare) Device(int) string              { return b.device }
func (bare) CNI() ([]byte, []string)          { return nil, nil }

// telling is bare and tells its subnets and leases.
type telling struct{ bare }

func (telling) Subnet(context.Context, *node.Machine) (netip.Prefix, error) {
	return netip.Prefix{}, nil
}

func (telling) Leases(context.Context, driver.World) ([]driver.Lease, error) {
	return nil, nil
}

func TestWhatADriverDoesNotSayIsLacking(t *testing.T) {
	all := []driver.Feature{
		driver.FeatureKeys, driver.FeatureLeases, driver.FeatureSubnet, driver.FeatureSubnetFile,
		driver.FeatureDevice,
	}
	for name, c := range map[string]struct {
		d    driver.Driver
		want []driver.Feature // of those above
	}{
		"ours":    {driver.Ours{}, nil},
		"flannel": {driver.Flannel{}, nil},
		"bare":    {bare{}, all},
		"telling": {
			telling{}, []driver.Feature{driver.FeatureKeys, driver.FeatureSubnetFile, driver.FeatureDevice},
		},
		"with a file and a device": {
			bare{"/run/x", "x0"}, []driver.Feature{driver.FeatureKeys, driver.FeatureLeases},
		},
	} {
		lacking := driver.Lacking(c.d)
		for _, f := range all {
			if slices.Contains(lacking, f) != slices.Contains(c.want, f) {
				t.Errorf("%s: %q in %q", name, f, lacking)
			}
		}
	}
	if driver.NeedsV2(bare{}) || !driver.NeedsV2(driver.Flannel{V2: true}) || driver.NeedsV2(driver.Ours{}) {
		t.Error("etcd's v2 API is for agents that keep flannel's keys there, and for those alone")
	}
	var lacks *driver.LacksError
	err := driver.Lacks(bare{}, driver.FeatureIPv6, driver.FeatureDevice)
	if !errors.As(err, &lacks) || lacks.Feature != driver.FeatureIPv6 ||
		err.Error() != `bare lacks "ipv6": a network of both families` {
		t.Errorf("%v", err)
	}
	if driver.ReadinessOf(bare{}) != driver.ReadyNotify {
		t.Error("without a subnet file nothing but READY=1 is left")
	}
}

func TestRegister(t *testing.T) {
	driver.Register("bare-agent", bare{})
	if names := driver.Registered(); !slices.Contains(names, "bare-agent") {
		t.Errorf("registered are %q", names)
	}
	chosen, err := driver.Choice{Agent: "bare-agent"}.Absolute()
	if err != nil || chosen.Agent != "bare-agent" {
		t.Errorf("the name is taken for a path: %+v, %v", chosen, err)
	}
	if d, err := driver.Open(chosen, ""); err != nil || d != (bare{}) {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := driver.Open(driver.Choice{Agent: "bare-agent", CNIDirs: []string{"/x"}}, ""); err == nil ||
		!strings.Contains(err.Error(), "--cni-bin-dir") {
		t.Errorf("plugins that nobody would use: %v", err)
	}
	err = driver.Flannel{Path: "/nowhere/flanneld"}.Check()
	if !strings.Contains(err.Error(), "ours, bare-agent") {
		t.Errorf("the agents that there are by name: %v", err)
	}
	for name, want := range map[string]string{
		"bare-agent": "already", "ours": "already", "./x": "no name", "x.yaml": "no name", "": "no name",
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, want) {
					t.Errorf("%q: %q", name, said)
				}
			}()
			driver.Register(name, bare{})
		}()
	}
}
