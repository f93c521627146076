package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// Stopped reports whether every thread of the process is in state T (proc(5)); the error names one that is
// not. One thread is not enough: kill(2) returns before SIGSTOP has reached those on other processors.
func (p *Process) Stopped() (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid()))
	if err != nil {
		return false, err
	}
	threads := 0
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		if _, state, _ := bytes.Cut(raw, []byte(") ")); !bytes.HasPrefix(state, []byte("T")) {
			return false, fmt.Errorf("%s reads %q", path, raw)
		}
		threads++
	}
	if threads == 0 {
		return false, fmt.Errorf("process %d has no threads", p.Pid())
	}
	return true, nil
}
