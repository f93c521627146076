package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/wait"
)

// stoppedWithin is how long a process may take to stop. The slowest one seen took 21 ms.
const stoppedWithin = 5 * time.Second

// waitStopped waits until a process has stopped after SIGSTOP. A thread on another processor runs on for a
// while and may still answer requests. That was so after one pause in three.
func waitStopped(p *node.Process) error {
	err := wait.Within(context.Background(), stoppedWithin, time.Millisecond, func(context.Context) error {
		stopped, err := p.Stopped()
		if stopped || !p.Running() {
			return nil
		}
		return cmp.Or(err, errors.New("a thread still runs"))
	})
	if err != nil {
		return fmt.Errorf("pause etcd: %s after SIGSTOP: %w", stoppedWithin, err)
	}
	return nil
}
