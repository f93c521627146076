package driver_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
)

func TestMissingBinariesAreNamed(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"overlayd", "overlay-cni", "bridge"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := driver.Ours{Bin: bin}.Check()
	if err == nil || !strings.Contains(err.Error(), "host-local") ||
		!strings.Contains(err.Error(), "make build") ||
		strings.Contains(err.Error(), "overlayd") {
		t.Errorf("want host-local alone, and what to do: %v", err)
	}
	err = driver.Ours{Bin: bin, Defects: []string{"forget-subnet"}}.Check()
	if err == nil || !strings.Contains(err.Error(), "overlayd-defects") {
		t.Errorf("the build with defects is missing and not named: %v", err)
	}
}

func TestCommandTellsTheAgentItsPlace(t *testing.T) {
	spec := driver.Spec{
		Node: "node01", PublicIP: netip.MustParseAddr("192.168.200.201"), Uplink: "eth0",
		EtcdEndpoints: []string{"http://a:2379", "http://b:2379"}, EtcdPrefix: "/p", LeaseTTL: 3 * time.Second,
		ExtraArgs: []string{"--last"},
	}
	c := driver.Ours{Bin: "/bin", Defects: []string{"forget-subnet"}, Args: []string{"--mine"}}.Command(spec)
	if c.Path != "/bin/overlayd-defects" {
		t.Errorf("path %s", c.Path)
	}
	for _, want := range []string{
		"--etcd-endpoints=http://a:2379,http://b:2379", "--etcd-prefix=/p", "--iface=eth0",
		"--node-name=node01", "--lease-ttl=3s", "--defect=forget-subnet", "--mine",
	} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("%s is not in %q", want, c.Args)
		}
	}
	if c.Args[len(c.Args)-1] != "--last" {
		t.Errorf("arguments of this one start must win, so come last: %q", c.Args)
	}
}

func TestCNINamesDefectsOnlyWhenThereAre(t *testing.T) {
	for _, defects := range [][]string{nil, {"forget-subnet"}} {
		raw, dirs := driver.Ours{Bin: "/bin", Defects: defects}.CNI()
		var list struct {
			Plugins []struct {
				Type     string
				Defects  []string
				Delegate struct{ HairpinMode, IsDefaultGateway bool }
			}
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		p := list.Plugins[0]
		if !slices.Equal(p.Defects, defects) || !p.Delegate.HairpinMode || !p.Delegate.IsDefaultGateway {
			t.Errorf("%s", raw)
		}
		if want := "overlay-cni"; strings.TrimSuffix(p.Type, "-defects") != want ||
			!slices.Equal(dirs, []string{"/bin"}) {
			t.Errorf("type %s in %v", p.Type, dirs)
		}
	}
}

// addr is netip.MustParseAddr.
func addr(text string) netip.Addr { return netip.MustParseAddr(text) }
