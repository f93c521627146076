package agent

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// What stood in the way of the subnet file goes away without the agent being told: a full disk, a folder
// that could not be written. Nothing else may happen for hours then.
func TestSubnetFileIsWrittenAgain(t *testing.T) {
	l := newLab(t, 5, network77)
	o := l.options()
	o.Grace = time.Millisecond                     // no timer left from the start
	must(t, os.MkdirAll(o.SubnetFile+"/x", 0o755)) // a folder in its place
	log, _, _ := l.run(o)
	within(t, 20*time.Second, "that it cannot be written is said", func() bool {
		return strings.Contains(log.String(), "cannot write the subnet file")
	})
	<-time.After(2 * publishPauseMost) // the publications of the start are over
	must(t, os.RemoveAll(o.SubnetFile))
	there := func() bool { return exists(o.SubnetFile) }
	within(t, 10*time.Second, "the file is written", there)
	must(t, os.Remove(o.SubnetFile))
	within(t, 10*time.Second, "the file is there again", there)
}

func TestStatusIsServedWhileThereIsNoUplink(t *testing.T) {
	l := newLab(t, 6, network77)
	o := l.options()
	o.Ifaces, o.HealthzIP, o.HealthzPort = []string{"nolink"}, "127.0.0.1", 18081
	log, _, _ := l.run(o)
	within(t, 20*time.Second, "the agent waits", func() bool {
		return strings.Contains(log.String(), "waiting for the uplink")
	})
	for path, want := range map[string]int{"healthz": http.StatusOK, "readyz": http.StatusServiceUnavailable} {
		answer, err := http.Get(fmt.Sprintf("http://%s:%d/%s", o.HealthzIP, o.HealthzPort, path))
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("/%s: %s", path, answer.Status)
		}
	}
}
