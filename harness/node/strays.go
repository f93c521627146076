package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/wait"
)

// straysWithin is how long a killed stray may take to end.
const straysWithin = 5 * time.Second

// killStrays kills the processes that are left in a network namespace. A program that put itself into the
// background has left its session, so signals to the session do not reach it.
func killStrays(ctx context.Context, netFD int) error {
	return wait.Within(ctx, straysWithin, 5*time.Millisecond, func(context.Context) error {
		pids, err := strays(netFD)
		if err != nil {
			return wait.GiveUp(err)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return wait.GiveUp(fmt.Errorf("end process %d, which was left behind: %w", pid, err))
			}
		}
		if len(pids) > 0 {
			return fmt.Errorf("processes %v were left behind and do not end", pids)
		}
		return nil
	})
}

// strays lists the processes in a network namespace, but not this process. Zombies are not in the list: they
// have no namespaces any more.
func strays(netFD int) ([]int, error) {
	var want unix.Stat_t
	if err := unix.Fstat(netFD, &want); err != nil {
		return nil, fmt.Errorf("look for processes left behind: %w", err)
	}
	entries, err := ns.Links("/proc", "net")
	if err != nil {
		return nil, fmt.Errorf("look for processes left behind: %w", err)
	}
	var pids []int
	for _, path := range entries {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Dev == want.Dev && st.Ino == want.Ino {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
