package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/driver"
)

func TestColumnsMultiply(t *testing.T) {
	o := matrixOptions{
		agents: []string{"ours=ours", "theirs=/opt/flanneld"}, backends: []string{"vxlan", "host-gw"},
		etcdBin: []string{"/opt/etcd"},
	}
	columns, err := o.columns()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
		if c.world.etcdBin != "/opt/etcd" {
			t.Errorf("%s runs on etcd %q", c.name, c.world.etcdBin)
		}
	}
	if want := []string{
		"ours vxlan",
		"ours host-gw",
		"theirs vxlan",
		"theirs host-gw",
	}; !slices.Equal(
		names,
		want,
	) {
		t.Errorf("%q", names)
	}
	for _, wrong := range [][]string{nil, {"x"}, {"=x"}, {"x="}, {"a b=x"}, {"a/b=x"}, {"a=x", "a=y"}} {
		if _, err := (matrixOptions{agents: wrong}).columns(); err == nil ||
			!strings.Contains(err.Error(), "--agent") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestExactlyOneScenario(t *testing.T) {
	const name = `etcd (a+b): "c"`
	filter := exactly(name)[0]
	if strings.Contains(filter, ":") {
		t.Errorf("%s would be taken for a label", filter)
	}
	re := regexp.MustCompile(filter)
	if !re.MatchString("scenarios "+name) || re.MatchString("scenarios "+name+" more") ||
		re.MatchString("scenarios more "+name) {
		t.Errorf("%s", filter)
	}
}

func TestWorldsThatAreWrong(t *testing.T) {
	for want, w := range map[string]worldFlags{
		"--backend udp: it is vxlan or host-gw": {backend: "udp"},
		"--rules none: it is iptables or":       {rules: "none"},
		"--etcd-bin: ":                          {etcdBin: "/nowhere/etcd"},
		"--etcd-v2-bin: ":                       {etcdV2Bin: "/nowhere/etcd"},
	} {
		if err := w.resolve(t.Context(), "/nowhere"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

// TestEtcdOfOldAgents: the etcd with the v2 API is for those agents alone that have nothing else.
func TestEtcdOfOldAgents(t *testing.T) {
	bin := t.TempDir()
	executable := func(name, says string) string {
		path := filepath.Join(bin, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+says+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	names := []string{"overlayd", "overlay-cni", "bridge", "host-local", "iptables", "iptables-restore"}
	for _, name := range names {
		executable(name, "v0.0.0")
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	etcd := executable("etcd", "3.4")
	for version, want := range map[string]string{"v0.17.0": etcd, "v0.18.0": ""} {
		w := worldFlags{choice: driver.Choice{Agent: executable("flanneld", version)}, etcdV2Bin: etcd}
		if err := w.resolve(t.Context(), bin); err != nil || w.etcdBin != want {
			t.Errorf("%s: etcd %q, %v", version, w.etcdBin, err)
		}
	}
	var needs *needsV2Error
	w := worldFlags{choice: driver.Choice{Agent: executable("flanneld", "v0.17.0")}}
	if err := w.resolve(t.Context(), bin); !errors.As(err, &needs) {
		t.Errorf("without an etcd of its own: %v", err)
	}
}
