package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nemesh/nemesh/harness/node"
)

// stoppedWithin bounds how long a process may take to stop; the slowest seen took 21 ms.
const stoppedWithin = 5 * time.Second

// waitStopped waits until every thread of a process that was sent SIGSTOP has stopped. kill(2) returns
// before that, and a thread on another processor goes on and may answer what is asked meanwhile: so it was
// after one pause in three.
func waitStopped(p *node.Process) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(stoppedWithin); ; <-tick.C {
		running, err := runningThreads(p.Pid())
		switch {
		case !p.Running():
			return nil
		case err == nil && running == 0:
			return nil
		case time.Now().After(deadline):
			return errors.Join(
				fmt.Errorf("pause etcd: %d threads still run %s after SIGSTOP", running, stoppedWithin),
				err,
			)
		}
	}
}

// runningThreads counts the threads of a process that are not in state T (proc(5)).
func runningThreads(pid int) (int, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return 0, err
	}
	if len(stats) == 0 {
		return 0, fmt.Errorf("process %d has no threads", pid)
	}
	running := 0
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		if _, state, _ := bytes.Cut(raw, []byte(") ")); !bytes.HasPrefix(state, []byte("T")) {
			running++
		}
	}
	return running, nil
}
