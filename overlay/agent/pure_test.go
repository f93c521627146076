package agent

import (
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/netconf"
)

func parse(env map[string]string, args ...string) (Options, error) {
	return ParseOptions(args, func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}, io.Discard)
}

func TestDefaultsAreFlannels(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.EtcdPrefix != "/coreos.com/network" || o.SubnetFile != "/run/flannel/subnet.env" || o.IPMasq ||
		!o.ForwardRules || o.LeaseTTL != 24*time.Hour || o.LeaseRenew != 8*time.Hour || len(o.EtcdEndpoints) != 2 {
		t.Fatalf("%+v", o)
	}
}

func TestCommandLineThenOursThenFlannels(t *testing.T) {
	env := map[string]string{
		"FLANNELD_IP_MASQ":       "true",
		"FLANNELD_ETCD_PREFIX":   "/f",
		"OVERLAYD_ETCD_PREFIX":   "/o",
		"FLANNELD_IFACE":         "eth9",
		"FLANNELD_ETCD_PASSWORD": "secret",
	}
	o, err := parse(env, "-iface", "eth1", "--iface=eth2", "-etcd-endpoints", "http://a:1,http://b:2")
	if err != nil {
		t.Fatal(err)
	}
	if !o.IPMasq || o.EtcdPrefix != "/o" || strings.Join(o.Ifaces, " ") != "eth1 eth2" ||
		o.EtcdPassword != "secret" ||
		strings.Join(o.EtcdEndpoints, " ") != "http://a:1 http://b:2" {
		t.Fatalf("%+v", o)
	}
}

func TestEmptyEnvironmentSaysNothing(t *testing.T) {
	o, err := parse(map[string]string{
		"FLANNELD_HEALTHZ_PORT": "", "FLANNELD_IP_MASQ": "", "FLANNELD_IFACE": "", "FLANNELD_ETCD_ENDPOINTS": "",
		"OVERLAYD_ETCD_PREFIX": "", "FLANNELD_ETCD_PREFIX": "/f",
	}, "--vmodule=main=2", "--log_backtrace_at=main.go:1")
	if err != nil || len(o.Ifaces) != 0 || len(o.EtcdEndpoints) != 2 || o.EtcdPrefix != "/f" {
		t.Fatalf("%+v, %v", o, err)
	}
}

// The state is written with indents, the configuration in it too; that is no other configuration.
func TestSavedConfigurationIsTheSame(t *testing.T) {
	const text = `{"Network":"10.77.0.0/16","Backend":{"Type":"vxlan"}}`
	s := fresh()
	s.Config = []byte(text)
	dir := t.TempDir()
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	s, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !sameConfig(s.Config, []byte(text)) {
		t.Errorf("%s is another than %s", s.Config, text)
	}
	for _, other := range []string{`{"Network":"10.78.0.0/16","Backend":{"Type":"vxlan"}}`, `{`, ``} {
		if sameConfig(s.Config, []byte(other)) {
			t.Errorf("%s is the same as %s", other, text)
		}
	}
}

func TestBadCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"--wrong":                          "not defined: -wrong",
		"start":                            `"start" is not a flag`,
		"--lease-ttl=10ms":                 "a second at least",
		"--lease-ttl=5s --lease-renew=6s":  "not before the end",
		"--etcd-timeout=0s":                "--etcd-timeout",
		"--public-ip=x":                    "public-ip",
		"--defect=rust":                    "--defect",
		"--etcd-certfile=x":                "go together",
		"--peer-hold=-1s":                  "--peer-hold",
		"--subnet-lease-renew-margin=soon": "invalid value",
		"--subnet-lease-renew-margin=0":    "1 to 1439",
		"--subnet-lease-renew-margin=1440": "1 to 1439",
		"--iface-regex=(":                  "--iface-regex",
		"--v=loud":                         "no number",
		"--kube-subnet-mgr":                "no Kubernetes mode",
		"--etcd-password-file=/none":       "--etcd-password-file",
		"--etcd-password-file=/dev/null --etcd-password=x": "give one of them",
	} {
		_, err := parse(nil, strings.Fields(args)...)
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want a usage error with %q, got %v", args, want, err)
		}
	}
	if _, err := parse(map[string]string{"FLANNELD_IP_MASQ": "perhaps"}); !errors.Is(err, ErrUsage) ||
		!strings.Contains(err.Error(), "FLANNELD_IP_MASQ") {
		t.Errorf("a bad environment: %v", err)
	}
	if _, err := parse(nil, "--help"); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

func TestFlannelsOtherFlagsAreTaken(t *testing.T) {
	o, err := parse(nil, "-v=10", "--kube-subnet-mgr=false", "--ip-blackhole-route", "--kubeconfig-file=")
	if err != nil || o.LogLevel != "debug" || !o.BlackholeRoute {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestRenewMargin(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"":                                 8 * time.Hour,
		"--subnet-lease-renew-margin=1430": 10 * time.Minute,
		"--lease-ttl=3s":                   time.Second,
		"--lease-renew=7s":                 7 * time.Second,
	} {
		o, err := parse(nil, strings.Fields(args)...)
		if err != nil || o.LeaseRenew != want {
			t.Errorf("%q: %s, %v", args, o.LeaseRenew, err)
		}
	}
}

func TestStateSurvives(t *testing.T) {
	dir := t.TempDir()
	s, err := load(dir)
	if err != nil || s.Instance == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	n := lease.Subnet{V4: netip.MustParsePrefix("10.5.1.0/24")}
	s.Subnet, s.LeaseID, s.VtepMAC = n.Key(), 7, lease.MAC{2, 0, 0, 0, 0, 1}
	s.remember(lease.View{Leases: []lease.Lease{{Subnet: n, Attrs: lease.Attrs{
		PublicIP: netip.MustParseAddr("1.1.1.1"), BackendType: "host-gw",
	}}}}, []byte(`{"Network":"10.5.0.0/16"}`))
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, stateFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	again, err := load(dir)
	before, errBefore := s.encode()
	after, errAfter := again.encode()
	if err != nil || errBefore != nil || errAfter != nil || string(before) != string(after) {
		t.Fatalf("%+v became %+v, %v", s, again, err)
	}
	v, ok := again.view()
	if !ok || len(v.Leases) != 1 || v.Leases[0].Subnet != n {
		t.Fatalf("%+v, %t", v, ok)
	}
}

func TestDamagedStateIsSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, stateFile)
	if err := os.WriteFile(path, []byte(`{"Instance":"x"`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := load(dir)
	if err == nil || s.Instance == "" || s.Instance == "x" {
		t.Fatalf("%+v, %v", s, err)
	}
	if raw, err := os.ReadFile(path + ".damaged"); err != nil || len(raw) == 0 {
		t.Fatalf("what was damaged is lost: %v", err)
	}
}

func TestSubnetFile(t *testing.T) {
	c, err := netconf.Parse([]byte(`{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fc00::/48"}`))
	if err != nil {
		t.Fatal(err)
	}
	own := lease.Subnet{V4: netip.MustParsePrefix("10.5.52.0/24"), V6: netip.MustParsePrefix("fc00:0:0:5::/64")}
	env := subnetEnv(c, own, 1450, true)
	const want = "FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.52.1/24\nFLANNEL_IPV6_NETWORK=fc00::/48\n" +
		"FLANNEL_IPV6_SUBNET=fc00:0:0:5::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	if string(env) != want {
		t.Fatalf("got %s", env)
	}
	path := filepath.Join(t.TempDir(), "flannel", "subnet.env")
	if changed, err := updateFile(path, env, 0o644); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if changed, err := updateFile(path, env, 0o644); changed || err != nil {
		t.Fatal("written again without need", err)
	}
	if got := previousSubnet(path); got != own {
		t.Fatalf("read back as %v", got)
	}
	if got := previousSubnet(path + ".not"); !got.IsZero() {
		t.Fatalf("out of nothing: %v", got)
	}
}
