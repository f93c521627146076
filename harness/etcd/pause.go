package etcd

import (
	"fmt"
	"time"

	"github.com/nemesh/nemesh/harness/node"
)

// stoppedWithin is how long a process may take to stop. The slowest one seen took 21 ms.
const stoppedWithin = 5 * time.Second

// waitStopped waits until a process has stopped after SIGSTOP. A thread on another processor runs on for a
// while and may still answer requests. That was so after one pause in three.
func waitStopped(p *node.Process) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(stoppedWithin); ; <-tick.C {
		stopped, err := p.Stopped()
		switch {
		case stopped || !p.Running():
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("pause etcd: a thread still runs %s after SIGSTOP: %w", stoppedWithin, err)
		}
	}
}
