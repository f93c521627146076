package ns_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
)

func TestLinksOfProcessesAndThreads(t *testing.T) {
	for _, dir := range []string{"/proc", "/proc/self/task"} { // the first thread has the process's number
		for _, kind := range []string{"net", "mnt"} {
			links, err := ns.Links(dir, kind)
			want := fmt.Sprintf("%s/%d/ns/%s", dir, os.Getpid(), kind)
			if err != nil || !slices.Contains(links, want) {
				t.Errorf("links of kind %s below %s: %v, %v; want %s among them", kind, dir, links, err, want)
			}
			for _, link := range links {
				var stat unix.Stat_t
				if err := unix.Stat(link, &stat); err != nil && err != unix.ENOENT && err != unix.ESRCH {
					t.Errorf("%s names no namespace: %v", link, err)
				}
			}
		}
	}
	if _, err := ns.Links("/proc/no such folder", "net"); err == nil {
		t.Error("a folder that does not exist is listed without an error")
	}
}
