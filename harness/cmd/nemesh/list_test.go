package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/suite"
)

func TestParseScenarios(t *testing.T) {
	got, err := parseScenarios([]byte(`[{"SpecReports":[
		{"LeafNodeType":"It","LeafNodeText":"loses nothing","LeafNodeLabels":["red:deaf","kind:lease"],
		 "ContainerHierarchyTexts":["lease","revoked"],
		 "ContainerHierarchyLabels":[["kind:lease"],["issue:flannel-1"]],
		 "State":"passed"},
		{"LeafNodeType":"It","LeafNodeText":"not chosen","State":"skipped"},
		{"LeafNodeType":"It","LeafNodeText":"etcd comes before","State":"passed"},
		{"LeafNodeType":"ReportAfterSuite","State":"passed"}]}]`))
	if err != nil || len(got) != 2 || got[0].Name != "etcd comes before" {
		t.Fatalf("%+v, %v", got, err)
	}
	got = got[1:]
	want := []string{"issue:flannel-1", "kind:lease", "red:deaf"}
	if got[0].Name != "lease revoked loses nothing" || !slices.Equal(got[0].Labels, want) {
		t.Errorf("%+v", got[0])
	}
	if n := labelled(got, "red:deaf"); n != 1 {
		t.Errorf("%d scenarios are red under deaf", n)
	}
	got = append(got, scenario{Labels: []string{"Serial", "kind:lease"}})
	labels := []listedLabel{{"issue:flannel-1", 1}, {"kind:lease", 2}, {"red:deaf", 1}}
	if l := labelsOf(got); !slices.Equal(l, labels) {
		t.Errorf("%+v", l)
	}
}

func TestListing(t *testing.T) {
	l := listing{
		Scenarios: []scenario{{"lease revoked", []string{"kind:lease", "red:deaf"}}},
		Labels:    []listedLabel{{"kind:lease", 1}, {"red:deaf", 12}},
		Defects:   nil,
	}
	for _, d := range parseDefects([]byte("deaf\thears no event\n" +
		"keep-mtu\tkeeps the MTU of an old device\n\n")) {
		l.Defects = append(l.Defects, listedDefect{listedOne: d})
	}
	var b strings.Builder
	if err := l.print(&b); err != nil {
		t.Fatal(err)
	}
	want := "scenarios (1)\n  lease revoked\n      kind:lease red:deaf\n" +
		"labels (2)\n  kind:lease  1\n  red:deaf    12\n" +
		"defects (2)\n  deaf      hears no event\n  keep-mtu  keeps the MTU of an old device\n"
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	raw, err := json.Marshal(l)
	if err != nil || !strings.Contains(string(raw), `"defects":[{"id":"deaf","about":"hears no event"}`) {
		t.Errorf("%s, %v", raw, err)
	}
}

// Faults are listed, and their labels are completed, with what the table says of them.
func TestFaultsAreDescribed(t *testing.T) {
	l, err := list(t.Context(), runOptions{}, []string{"faults"})
	if err != nil || len(l.Faults) != len(fault.Catalogue()) {
		t.Fatalf("%d faults, %v", len(l.Faults), err)
	}
	var b strings.Builder
	if err := l.print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  etcd-slow                etcd    requests to etcd and its answers are delayed [by=150ms]\n" +
			"                                   promised: no packet lost; new pods work; agents wait\n",
		"(lasts beyond its heal)",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	raw, err := json.Marshal(l)
	want := `{"id":"packet-loss","about":"packets of a node are lost","component":"node",` +
		`"promise":"loses what the cable loses; nothing is torn down","params":{"share":"20"}}`
	if err != nil || !strings.Contains(string(raw), want) {
		t.Errorf("%s, %v", raw, err)
	}
	got := described([]listedLabel{{"fault:etcd-stop", 3}, {"fault:none", 2}, {"kind:lease", 1}})
	stop := "fault:etcd-stop	etcd: every member of etcd ends as an operator would end it"
	if !slices.Equal(got, []string{stop, "fault:none	scenarios: 2", "kind:lease	scenarios: 1"}) {
		t.Errorf("%q", got)
	}
}

func TestDoctor(t *testing.T) {
	bin := t.TempDir()
	for name, mode := range map[string]os.FileMode{"ginkgo": 0o755, "bridge": 0o644} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	all := binaries(bin)
	all = append(all, programs(func(name string) (string, error) {
		if name == "/usr/sbin/iptables" {
			return name, nil
		}
		return "", os.ErrNotExist
	})...)
	all = append(
		all,
		refusal(finding{What: "sandbox", Required: true}, "nemesh: this machine does not allow a sandbox\n"+
			"  Two ways on:\n    sudo\n    or allow user namespaces once: "+
			"sudo sysctl -w user.max_user_namespaces=15000",
			errors.New("exit status 2")),
	)
	var b strings.Builder
	tellHealth(&b, all)
	for _, want := range []string{
		"OK       bin/ginkgo ", "missing  bin/bridge              not executable", "to have it: make build",
		"OK       iptables                /usr/sbin/iptables", "missing  iptables-legacy",
		"missing  sandbox                 this machine does not allow a sandbox",
		"to have it: sudo sysctl -w user.max_user_namespaces=15000", "Scenarios cannot run: 8 of",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestKeptText(t *testing.T) {
	k := suite.Kept{
		Scenario: "lease revoked",
		Location: "scenarios/a_test.go:7",
		Message:  "Expected\n  nothing",
		World:    "42",
		Nodes:    []string{"node01", "etcd"},
		Active:   []string{"etcd stopped"},
	}
	one, many := keptText(k, "bin/nemesh", 1), keptText(k, "bin/nemesh", 3)
	for _, want := range []string{
		"FAIL lease revoked\n", "scenarios/a_test.go:7", "broken: etcd stopped",
		"    Expected\n",
		"    bin/nemesh enter node01\n    bin/nemesh enter etcd\n", "Ctrl-C",
	} {
		if !strings.Contains(one, want) {
			t.Errorf("%q is not in\n%s", want, one)
		}
	}
	if !strings.Contains(many, "bin/nemesh enter --world 42 node01\n") {
		t.Error(many)
	}
}

// TestHelpTeaches sees to it that every command has an example and more than a line of help.
func TestHelpTeaches(t *testing.T) {
	for _, cmd := range []*cobra.Command{
		runCommand(), listCommand(), doctorCommand(), enterCommand(), reportCommand(), diffCommand(),
		explainCommand(),
		baselineCommand(), matrixCommand(), bisectCommand(),
	} {
		if !strings.Contains(cmd.Example, "nemesh "+cmd.Name()) || len(cmd.Long) <= len(cmd.Short) {
			t.Errorf("nemesh %s --help does not teach by example", cmd.Name())
		}
	}
}
