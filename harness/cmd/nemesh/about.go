package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/reports/record"
)

// about describes this run.
func about(seed int64) *record.Run {
	r := &record.Run{
		Version: record.Version, Started: time.Now(), Command: append([]string{"nemesh"}, os.Args[1:]...),
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Root: startedByRoot(), Module: version(), Seed: seed,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return r
}

// version is that of the module from which this program was built.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// startedByRoot tells whether the sandbox was entered as root: then no user namespace was made, and its
// users are the machine's.
func startedByRoot() bool {
	raw, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(raw))
	return err == nil && len(fields) == 3 && fields[2] == "4294967295"
}

// pointLatest replaces the link to the latest run in one step.
func pointLatest(dir, reports string) error {
	temp := filepath.Join(reports, ".latest-"+filepath.Base(dir))
	if err := os.Symlink(filepath.Join("runs", filepath.Base(dir)), temp); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(reports, "latest"))
}
