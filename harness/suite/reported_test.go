package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const scenario = `package scenarios

// What the file is about.

import "fmt"

// helper is no scenario.
func helper() { fmt.Println() }

var _ = Describe("agent", func() {
	// flannel#1. Reported: it ended.
	It("stays", func() {
		helper() // not this one
	})

	// flannel#2. Reported: two things.
	DescribeTable("survives",
		Entry("one", 1),
		// flannel#3. Reported: another.
		Entry("two", 2),
	)

	It("has no report", func() {})
})
`

func TestReportedIsTheCommentInFront(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent_test.go")
	if err := os.WriteFile(path, []byte(scenario), 0o600); err != nil {
		t.Fatal(err)
	}
	for find, want := range map[string]string{
		`It("stays"`:         "flannel#1. Reported: it ended.",
		`helper() // not`:    "flannel#1. Reported: it ended.",
		`Entry("one"`:        "flannel#2. Reported: two things.",
		`Entry("two"`:        "flannel#3. Reported: another.",
		`It("has no report"`: "What the file is about.",
	} {
		before, _, found := strings.Cut(scenario, find)
		if !found {
			t.Fatal(find)
		}
		if got := reported(path, strings.Count(before, "\n")+1); got != want {
			t.Errorf("%s: got %q, want %q", find, got, want)
		}
	}
	if got := reported(path+".gone", 1); got != "" {
		t.Errorf("a file that is gone: %q", got)
	}
}
