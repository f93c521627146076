package sandbox_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A suite that is started by `ginkgo -p` enters one sandbox for each of its processes, which still report to
// the server outside.
func TestGinkgoInParallelFromOutside(t *testing.T) {
	cmd := exec.Command("go", "tool", "ginkgo", "run", "--procs=3", "--no-color", "./testdata/suite")
	out, code := exit(t, cmd)
	if code != 0 || !strings.Contains(out, "Ran 6 of 6 Specs") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
}
