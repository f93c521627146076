package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
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
	filter := exactly(name)
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
	} {
		if err := w.resolve(t.Context(), "/nowhere"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}
