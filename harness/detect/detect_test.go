package detect_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/fixtures"
	"github.com/nemesh/nemesh/harness/detect"
	"github.com/nemesh/nemesh/reports/record"
)

func whole() detect.Matrix {
	return detect.Matrix{
		Defects: []detect.Defect{{Name: "deaf", Symptom: "lost [0-9]+"}, {Name: "mute", Symptom: "silent"}},
		Scenarios: []detect.Scenario{
			{Name: "a", Red: []string{"deaf"}},
			{Name: "b", Red: []string{"mute", "deaf"}},
		},
		Cells: []detect.Cell{
			{"deaf", "a", record.Failed, "lost 7 of 9"},
			{"deaf", "b", record.Failed, "lost 8"},
			{"mute", "b", record.Failed, "it was silent\nand more"},
			{"mute", "a", record.Failed, "anything"},
		},
	}
}

func TestWhole(t *testing.T) {
	if holes := whole().Holes(); len(holes) != 0 {
		t.Error(holes)
	}
	want := "| mute | b | a |\n"
	if got := whole().Markdown(); !strings.Contains(got, want) || strings.Contains(got, "Holes") {
		t.Error(got)
	}
}

func TestHoles(t *testing.T) {
	for want, change := range map[string]func(*detect.Matrix){
		"no scenario is made for mute":         func(m *detect.Matrix) { m.Scenarios[1].Red = []string{"deaf"} },
		"a is passed under deaf, and should":   func(m *detect.Matrix) { m.Cells[0].State = record.Passed },
		"no defect turns this scenario red: a": func(m *detect.Matrix) { m.Cells[0].State = record.Passed },
		"but not with its symptom":             func(m *detect.Matrix) { m.Cells[2].Message = "nil pointer" },
		"b was not run under mute":             func(m *detect.Matrix) { m.Cells = m.Cells[:2] },
	} {
		m := whole()
		change(&m)
		if holes := strings.Join(m.Holes(), "\n"); !strings.Contains(holes, want) {
			t.Errorf("want %q in:\n%s", want, holes)
		}
	}
}

func TestTheListIsReadable(t *testing.T) {
	if all, err := detect.Parse(fixtures.Defects); err != nil || len(all) < 30 {
		t.Errorf("%d defects, %v", len(all), err)
	}
	for _, bad := range []string{
		"- name: a\n  symptom: '.'\n", "- name: a\n  symptom: '.*'\n", "- name: a\n  symptom: 'x|'\n",
		"- name: a\n  symptom: '[a-z]'\n", "- name: a\n  symptom: '('\n", "- name: a\n", "- nick: b\n", "hello",
	} {
		if _, err := detect.Parse([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A failure for another reason is no proof that a scenario notices a defect.
func TestSymptomsAreNotThoseOfAnotherFailure(t *testing.T) {
	all, err := detect.Parse(fixtures.Defects)
	if err != nil {
		t.Fatal(err)
	}
	for _, another := range []string{
		"not proven: build the world: start etcd: listen tcp :2379: bind: address already in use",
		"not proven: the fault is not proven: expected within 5s: the switch drops what node01 sends to etcd",
		"A spec timeout occurred",
		"Timed out after 10.001s.\nExpected\n    <bool>: false\nto be true",
		"Timed out after 5.002s.\nExpected\n    <string>: \nnot to be empty",
		"Timed out after 1.002s.\nExpected\n    <int>: 1\nto be >=\n    <int>: 100",
		"Unexpected error:\n    context deadline exceeded\noccurred",
		"Unexpected error:\n    read /run/flannel/subnet.env: permission denied\noccurred",
		"heal: heal \"uplink of node02 down\": no such device",
		"tear down the cluster: close node02 (02:42:ac:10:00:01, 172.16.12.0/24): device busy",
		"[PANICKED] runtime error: invalid memory address or nil pointer dereference",
	} {
		for _, d := range all {
			if regexp.MustCompile(d.Symptom).MatchString(another) {
				t.Errorf("%s would be known by %q, for its symptom is %q", d.Name, another, d.Symptom)
			}
		}
	}
}
