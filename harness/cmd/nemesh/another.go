package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nemesh/nemesh/harness/compare"
)

// another is a run of scenarios in a nemesh of its own.
type another struct {
	bin, reports string
	procs        int // 0: as nemesh run
	timeout      time.Duration
	world        []string // its flags, as of worldFlags.args
	filters      []string
	env          []string
	out          io.Writer
}

// run starts it, waits for its end, and reads the run from its record. Where it leaves no record, because
// nothing could be run, the run is zero; its output says why. An interruption is passed on to it.
func (a another) run(ctx context.Context) (compare.Run, error) {
	latest := filepath.Join(a.reports, "latest")
	before, _ := filepath.EvalSymlinks(latest) // that of an earlier run, if any
	if err := a.start(ctx); err != nil {
		return compare.Run{}, err
	}
	dir, err := filepath.EvalSymlinks(latest)
	if errors.Is(err, os.ErrNotExist) || err == nil && dir == before {
		return compare.Run{}, nil
	}
	if err != nil {
		return compare.Run{}, fmt.Errorf("find the run: %w", err)
	}
	return compare.Read(dir)
}

// start returns when it has ended, with whatever verdicts.
func (a another) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start nemesh: %w", err)
	}
	args := append([]string{
		"run", "--reports=" + a.reports, "--bin=" + a.bin, "--baseline=none",
		"--timeout=" + a.timeout.String(),
	}, a.world...)
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

// findBin returns the folder of the binaries, absolute, and sees that it has what a run needs.
func findBin(bin string) (string, error) {
	o := runOptions{bin: bin}
	err := o.findBinaries()
	return o.bin, err
}

// chosen lists the scenarios that filters choose, in the order of their names.
func chosen(ctx context.Context, bin string, filters []string) ([]string, error) {
	o := runOptions{bin: bin, filters: filters}
	names, err := o.names(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New(nothingMatched(filters))
	}
	return slices.Compact(names), nil
}
