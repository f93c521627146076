package compare_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/fixtures"
	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/reports/record"
)

func whole() compare.Detection {
	red := func(message string) record.Verdict { return record.Verdict{State: record.Failed, Message: message} }
	return compare.Detection{
		Defects: []compare.Defect{{Name: "deaf", Symptom: "lost [0-9]+"}, {Name: "mute", Symptom: "silent"}},
		Scenarios: []compare.Scenario{
			{Name: "a", Red: []string{"deaf"}},
			{Name: "b", Red: []string{"mute", "deaf"}},
		},
		Runs: map[string]compare.Run{
			"deaf": run(verdict("a", red("lost 7 of 9")), verdict("b", red("lost 8"))),
			"mute": run(verdict("b", red("it was silent\nand more")), verdict("a", red("anything"))),
		},
	}
}

func TestDetectionIsWhole(t *testing.T) {
	if holes := whole().Holes(); len(holes) != 0 {
		t.Error(holes)
	}
	want := "| mute | b | a |\n"
	if got := whole().Markdown(); !strings.Contains(got, want) || strings.Contains(got, "Holes") {
		t.Error(got)
	}
}

func TestHoles(t *testing.T) {
	for want, change := range map[string]func(*compare.Detection){
		"no scenario is made for mute": func(d *compare.Detection) { d.Scenarios[1].Red = []string{"deaf"} },
		"a is passed under deaf, and should fail\nno defect turns this scenario": func(d *compare.Detection) {
			d.Runs["deaf"].Results[0].State = record.Passed
		},
		"but not with its symptom \"silent\": nil pointer\n": func(d *compare.Detection) {
			d.Runs["mute"].Results[0].Message = "\nnil pointer\nand more"
		},
		"b was not run under mute": func(d *compare.Detection) { delete(d.Runs, "mute") },
		"a was not run under deaf": func(d *compare.Detection) {
			d.Runs["deaf"] = states(map[string]string{"a": "", "b": record.Passed})
		},
	} {
		d := whole()
		change(&d)
		if holes := strings.Join(d.Holes(), "\n") + "\n"; !strings.Contains(holes, want) {
			t.Errorf("want %q in:\n%s", want, holes)
		}
		if !strings.Contains(d.Markdown(), "Holes:\n\n- ") {
			t.Errorf("%s: the holes are not told", want)
		}
	}
}

func TestDefectsThatAreAskedFor(t *testing.T) {
	known, built := whole().Defects, []string{"deaf", "mute", "new"}
	for want, names := range map[string][]string{
		"": {"mute"},
		"no defect \"x\"; there are: deaf, mute, new": {"x"},
		"defect new has no symptom":                   nil,
	} {
		got, err := compare.ChooseDefects(known, built, names)
		switch {
		case want == "" && (err != nil || !slices.Equal(got, known[1:])):
			t.Errorf("%q: %v, %v", names, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: want %q in: %v", names, want, err)
		}
	}
	d := whole()
	d.Defects = known[1:]
	if d.OnlyMadeFor(); len(d.Scenarios) != 1 || d.Scenarios[0].Name != "b" {
		t.Errorf("%v", d.Scenarios)
	}
}

func TestTheListOfDefectsIsReadable(t *testing.T) {
	if all, err := compare.ParseDefects(fixtures.Defects); err != nil || len(all) < 30 {
		t.Errorf("%d defects, %v", len(all), err)
	}
	for _, bad := range []string{
		"- name: a\n  symptom: '.'\n", "- name: a\n  symptom: '.*'\n", "- name: a\n  symptom: 'x|'\n",
		"- name: a\n  symptom: '[a-z]'\n", "- name: a\n  symptom: '('\n", "- name: a\n", "- nick: b\n", "hello",
	} {
		if _, err := compare.ParseDefects([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A failure for another reason is no proof that a scenario notices a defect.
func TestSymptomsAreNotThoseOfAnotherFailure(t *testing.T) {
	all, err := compare.ParseDefects(fixtures.Defects)
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
