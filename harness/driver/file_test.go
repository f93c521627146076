package driver_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nemesh/nemesh/harness/driver"
)

// write makes a driver file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "driver.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDriverFilesThatAreWrong(t *testing.T) {
	const good = "name: x\nprogram: /bin/sh\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":               {"", "it is empty: name and program are needed"},
		"not YAML":            {"name: [", "it is not YAML"},
		"unknown key":         {good + "colour: red\n", `line 3 has "colour", which is no field of a driver`},
		"known keys are told": {good + "colour: red\n", "the fields are: name, program, arguments"},
		"two unknown keys":    {good + "colour: red\nsize: 1\n", `line 4 has "size"`},
		"no name":             {"program: /bin/sh\n", "name is missing"},
		"no program":          {"name: x\n", "program is missing"},
		"readiness":           {good + "ready: soon\n", `ready is "soon": it is notify (sd_notify) or sub`},
		"relative prefix":     {good + "key_prefix: network\n", `key_prefix is "network": it begins with a slash`},
		"feature": {
			good + "lacks: [charm]\n",
			`"charm", which is no feature: they are device, etcd-v3, ipv6, keys, lease-ttl,`,
		},
		"placeholder":      {good + "arguments: ['--x={pod}']\n", "placeholder {pod}, which stands for"},
		"environment":      {good + "environment: [X]\n", "each is NAME=value"},
		"not in PATH":      {"name: x\nprogram: no-such-agent\n", "no-such-agent is not in PATH"},
		"variable":         {"name: x\nprogram: ${NO_SUCH_VAR}\n", "NO_SUCH_VAR, which is not set"},
		"CNI list missing": {good + "cni_conf: none.json\n", "read the CNI configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := driver.ReadFile(write(t, c.text), ours())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "driver.yaml") {
				t.Errorf("want %q and the file's name in: %v", c.want, err)
			}
		})
	}
}

func TestDriverFileIsFilledIn(t *testing.T) {
	path := write(t, `
name: mine
program: ./agent
arguments: ["--etcd={etcd-endpoints}", "--at={etcd-prefix}", "--me={node}/{public-ip}", "--ttl={lease-ttl}"]
environment: ["NET={vni}"]
device: "vx{vni}"
key_prefix: /mine
lacks: [leave]
`)
	d, err := driver.ReadFile(path, ours())
	if err != nil {
		t.Fatal(err)
	}
	c := d.Command(driver.Spec{
		Node: "node01", PublicIP: addr("192.168.200.201"), EtcdEndpoints: []string{"http://a", "http://b"},
		EtcdPrefix: "/mine", LeaseTTL: 3 * time.Second, VNI: 7, ExtraArgs: []string{"--last"},
	})
	want := []string{
		"--etcd=http://a,http://b",
		"--at=/mine",
		"--me=node01/192.168.200.201",
		"--ttl=3s",
		"--last",
	}
	if !slices.Equal(c.Args, want) || c.Path != filepath.Join(filepath.Dir(path), "agent") {
		t.Errorf("%s %q", c.Path, c.Args)
	}
	if !slices.Contains(c.Env, "NET=7") || !slices.ContainsFunc(c.Env, func(e string) bool {
		return strings.HasPrefix(e, "PATH=")
	}) {
		t.Error("its environment is added to the harness's own, not put in its place")
	}
	if d.Device(7) != "vx7" || driver.PrefixOf(d) != "/mine" || d.SubnetFile() != "/run/flannel/subnet.env" ||
		driver.ReadinessOf(d) != driver.ReadySubnetFile || driver.Supervised(d) {
		t.Errorf("device %s, prefix %s, file %s", d.Device(7), driver.PrefixOf(d), d.SubnetFile())
	}
	if err := driver.Lacks(d, driver.FeatureState, driver.FeatureLeave); err == nil ||
		!strings.Contains(err.Error(), `mine lacks "leave"`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("one line that names the feature: %v", err)
	}
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), "is not there: give the path") {
		t.Errorf("%v", err)
	}
}

func TestOpenChoosesADriver(t *testing.T) {
	file := write(t, "name: mine\nprogram: /bin/sh\n")
	for agent, want := range map[string]string{
		"": "overlayd", "ours": "overlayd", "/opt/overlayd-v2": "overlayd", "/opt/flanneld-v0.28.9": "flanneld",
		"/opt/anything": "flanneld", file: "mine",
	} {
		d, err := driver.Open(driver.Choice{Agent: agent}, "/bin")
		if err != nil || d.Name() != want {
			t.Errorf("%q: %v, %v; want %s", agent, d, err, want)
		}
	}
}

func TestFlannelIsAskedWhichEtcdItSpeaks(t *testing.T) {
	for version, v3 := range map[string]bool{
		"v0.7.0": false, "v0.9.1": false, "0.17.0": false, "v0.18.0": true, "v0.28.9": true, "v1.0.0": true,
		"dev": true,
	} {
		path := filepath.Join(t.TempDir(), "flanneld")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		d, err := driver.Open(driver.Choice{Agent: path}, "/bin")
		if err != nil {
			t.Fatal(err)
		}
		if got := driver.Lacks(d, driver.FeatureEtcdV3) == nil; got != v3 {
			t.Errorf("%s speaks v3: %t", version, got)
		}
	}
}

func TestCNIOfTheVendor(t *testing.T) {
	list := filepath.Join(t.TempDir(), "10-x.conflist")
	if err := os.WriteFile(list, []byte(`{"name":"x","plugins":[{"type":"vendor"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	single := filepath.Join(t.TempDir(), "10-x.conf")
	if err := os.WriteFile(single, []byte(`{"name":"x","type":"vendor"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := driver.Open(
		driver.Choice{Agent: "/opt/flanneld", CNIConf: list, CNIDirs: []string{"/opt/cni"}},
		"/bin",
	)
	if err != nil {
		t.Fatal(err)
	}
	raw, dirs := d.CNI()
	if !strings.Contains(string(raw), "vendor") || !slices.Equal(dirs, []string{"/opt/cni", "/bin"}) {
		t.Errorf("%s in %q: the vendor's folder comes first", raw, dirs)
	}
	_, err = driver.Open(driver.Choice{CNIConf: single}, "/bin")
	if err == nil || !strings.Contains(err.Error(), "is no CNI configuration list") {
		t.Errorf("a single plugin's configuration: %v", err)
	}
}

func TestChoiceTravelsThroughTheEnvironment(t *testing.T) {
	want := driver.Choice{Agent: "/opt/flanneld", CNIConf: "/opt/x.conflist", CNIDirs: []string{"/a", "/b"}}
	for _, e := range want.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	if got := driver.FromEnv(); got.Agent != want.Agent || got.CNIConf != want.CNIConf ||
		!slices.Equal(got.CNIDirs, want.CNIDirs) {
		t.Errorf("%+v", got)
	}
	if _, err := (driver.Choice{Agent: "/run/flanneld"}).Absolute(); err == nil ||
		!strings.Contains(err.Error(), "the sandbox has one of its own") {
		t.Errorf("/run cannot be seen inside: %v", err)
	}
}

// TestExampleIsComplete keeps the example in step with the fields that there are.
func TestExampleIsComplete(t *testing.T) {
	raw, err := os.ReadFile("../../fixtures/drivers/flannel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = driver.ReadFile(write(t, "name: x\nwrong: 1\n"), ours())
	_, fields, _ := strings.Cut(err.Error(), "the fields are: ")
	for _, f := range strings.Split(strings.TrimSpace(fields), ", ") {
		if !strings.Contains(string(raw), "\n"+f+":") && !strings.Contains(string(raw), "\n# "+f+":") {
			t.Errorf("the example does not explain %s", f)
		}
	}
}
