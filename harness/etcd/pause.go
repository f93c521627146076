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

// stoppedWithin bounds how long a process may take to stop; the slowest seen took 21 ms.
const stoppedWithin = 5 * time.Second

// waitStopped waits until a process that was sent SIGSTOP has stopped. A thread on another processor goes on
// for a while and may answer what is asked meanwhile: so it was after one pause in three.
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
