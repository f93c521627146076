package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// another is a run of scenarios in a nemesh of its own, whose verdicts are read from its record.
type another struct {
	bin, reports string
	procs        int // 0: as nemesh run
	timeout      time.Duration
	world        []string // its flags, as of worldFlags.args
	filters      []string
	env          []string
	out          io.Writer
}

// run returns when it has ended, with whatever verdicts. An interruption is passed on to it.
func (a another) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start nemesh: %w", err)
	}
	args := append([]string{"run", "--reports=" + a.reports, "--bin=" + a.bin, "--baseline=none",
		"--timeout=" + a.timeout.String()}, a.world...)
	if a.procs > 0 {
		args = append(args, fmt.Sprintf("--procs=%d", a.procs))
	}
	cmd := exec.CommandContext(ctx, self, append(args, a.filters...)...)
	cmd.Env = append(os.Environ(), a.env...)
	cmd.Stdout, cmd.Stderr = a.out, a.out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() || ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("run nemesh: %w", err)
	}
	return nil
}

// exactly makes a filter for each of some scenarios. Ginkgo matches "suite scenario"; a colon would make it
// a label.
func exactly(scenarios ...string) []string {
	var filters []string
	for _, s := range scenarios {
		filters = append(filters, "^scenarios "+strings.ReplaceAll(regexp.QuoteMeta(s), ":", ".")+"$")
	}
	return filters
}
