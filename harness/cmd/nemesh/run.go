package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/build"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/suite"
	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// runOptions are the flags of `nemesh run`.
type runOptions struct {
	reports string
	procs   int
	timeout time.Duration
	bin     string
	filters []string
	world   worldFlags
	suite   suiteFlag
	// keep asks for the world of a failed scenario; keeper has it, and is nil without.
	keep   bool
	keeper *keeper
}

func runCommand() *cobra.Command {
	o := runOptions{}
	cmd := &cobra.Command{
		Use:   "run [FILTER…]",
		Short: "Run scenarios, all or those that match",
		Long: `Run scenarios in a sandbox of their own and leave a report.

A FILTER with a colon is a label, such as issue:flannel-636 or kind:lease, or any label of a kind if it
ends in the colon, such as issue: for whatever has a report. Any other is a regular expression over names;
put a dot where a name has a colon. Several labels are joined by "or", and so are several expressions; with
both, a scenario must match one of each. nemesh list shows names and labels.

With --keep, the first scenario that fails ends the run. Its world stays as it is, with its faults; no
further scenario is started, and the command that enters each node is printed. Ctrl-C then tears the world
down. Neither the scenario's time limit nor --timeout does. What the mesh measures meanwhile counts as well.

On a terminal the last line shows how far the run is. Elsewhere such a line is written once a minute. The
time left is an estimate from the newest earlier runs under --reports.

Exit codes: 0 all passed, 1 something failed, 2 something was not proven or the world could not be built.`,
		Example: `  nemesh run
  nemesh run flannel-636
  nemesh run kind:lease fault:etcd-stop
  nemesh run issue:
  nemesh run --keep 'tampering .* rules flushed'
  nemesh run --agent /usr/local/bin/flanneld
  nemesh run --suite ./mychaos      scenarios of your own; nemesh new scenario writes a first one`,
		ValidArgsFunction: completeLabels,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.filters = args
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.reports, "reports", "reports", "`folder` for reports; the newest is at latest")
	f.IntVar(&o.procs, "procs", defaultProcs(), "how many scenarios run side by side")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "when to give up on the whole run")
	f.StringVar(&o.bin, "bin", "", "`folder` of the binaries (default: where nemesh is)")
	f.BoolVar(&o.keep, "keep", false, "stop at the first failure and keep its world, for nemesh enter")
	o.world.add(f)
	o.suite.add(f)
	return cmd
}

// defaultProcs is three scenarios a processor, since they wait as long as they work, and no more than memory
// allows: each has an etcd and an agent a node.
func defaultProcs() int { return min(3*runtime.NumCPU(), 24) }

// run enters the sandbox, where it is called again, and there runs Ginkgo on the compiled suite.
func (o *runOptions) run(ctx context.Context) error {
	if o.procs < 1 {
		return fmt.Errorf("--procs %d: at least 1", o.procs)
	}
	if _, err := parseFilters(o.filters); err != nil {
		return err
	}
	if err := o.findBinaries(); err != nil {
		return err
	}
	if err := o.suite.prepare(ctx, &o.world, o.bin); err != nil {
		return err
	}
	if err := o.world.resolve(ctx, o.bin); err != nil {
		return err
	}
	sandbox.Enter()
	if _, err := os.Stat(o.bin); err != nil {
		return fmt.Errorf("%w: the sandbox has a /run of its own, so the binaries must be elsewhere", err)
	}
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	dir, err := makeRunDir(o.reports)
	if err != nil {
		return err
	}
	code, err := o.inside(ctx, dir)
	if err != nil {
		return err
	}
	return exitError(code)
}

// locate finds the folder of the binaries.
func (o *runOptions) locate() (err error) {
	o.bin, err = folder(o.bin)
	return err
}

// findBinaries finds the folder of the binaries and the compiled scenarios.
func (o *runOptions) findBinaries() (err error) {
	o.bin, err = o.suite.find(o.bin)
	return err
}

// makeRunDir makes the folder of this run.
func makeRunDir(reports string) (string, error) {
	reports, err := filepath.Abs(reports)
	if err != nil {
		return "", fmt.Errorf("make the report's folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(reports, "runs"), 0o755); err != nil {
		return "", fmt.Errorf("make the report's folder: %w (choose another with --reports)", err)
	}
	dir, err := os.MkdirTemp(filepath.Join(reports, "runs"), time.Now().Format("20060102-150405-"))
	if err != nil {
		return "", fmt.Errorf("make the report's folder: %w (choose another with --reports)", err)
	}
	return dir, os.Chmod(dir, 0o755)
}

// inside runs the scenarios, shows them as they end, and writes the reports. It returns the exit code.
func (o *runOptions) inside(ctx context.Context, dir string) (int, error) {
	began := time.Now()
	var err error
	if o.keep {
		if o.keeper, err = newKeeper(filepath.Join(sandbox.Dir, "keep")); err != nil {
			return exitUsage, err
		}
		var stop context.CancelFunc
		ctx, stop = o.keeper.context(ctx, o.timeout)
		defer stop()
	}
	path := filepath.Join(dir, "record.jsonl")
	rec, err := record.Open(path)
	if err != nil {
		return exitUsage, err
	}
	seed := began.Unix()
	run := about(seed)
	run.Suite, run.Agent, run.AgentVersion = o.suite.typed, o.world.name, o.world.version
	run.Defect = os.Getenv(suite.DefectEnv)
	rec.Write(record.Event{Kind: record.KindRun, Run: run})
	screen := newScreen(os.Stdout, began)
	if o.world.choice.Agent != "" {
		screen.print(o.world.about())
	}
	follow, err := openFollower(path)
	if err != nil {
		return exitUsage, err
	}
	defer follow.file.Close()

	ginkgo, err := o.start(ctx, dir, path, seed)
	if err != nil {
		return exitUsage, err
	}
	failed := o.watch(ginkgo, follow, screen, earlierRuns(filepath.Dir(dir), dir))
	outcome := follow.outcome
	late := o.late(ctx, failed, time.Since(began))
	whole := !late && ctx.Err() == nil && !o.keeper.ever()
	compared, code, err := o.world.compare(o.bin, outcome, outcome.Exit(), whole)
	if err != nil {
		return exitUsage, err
	}
	switch {
	case len(outcome.Scenarios) == 0 && failed == nil:
		code = exitUsage
		screen.print(nothingMatched(o.filters) + "\n")
	case late:
		code = max(code, exitUsage)
		screen.print(fmt.Sprintf("the run's time of %s was up: what was running is not proven, and the rest was "+
			"not started; --timeout gives more\n", o.timeout))
	case ctx.Err() != nil: // said below
	case failed != nil && code == exitPassed && outcome.Exit() == exitPassed, len(outcome.Scenarios) == 0:
		// Ginkgo failed without a scenario failing: the suite did not start, crashed, or ran out of time.
		code = exitUsage
		screen.print(ginkgoSaid(dir, failed))
	}
	if ctx.Err() != nil && !late {
		screen.print("interrupted: what was running is not proven, and the rest was not started\n")
		code = max(code, exitUsage)
	}
	rec.Write(
		record.Event{Kind: record.KindEnd, End: &record.End{Exit: code, Duration: int64(time.Since(began))}},
	)
	if err := rec.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "nemesh: the record is not complete:", err)
		code = max(code, exitUsage)
	}
	follow.read(func(*record.Scenario) {})
	screen.print(screen.style.Summary(outcome) + compared)
	if len(outcome.Scenarios) == 0 {
		return code, os.RemoveAll(dir) // nothing ran, so the newest report stays the newest
	}
	where, err := writeReports(outcome, dir, o.reports)
	if err != nil {
		return exitUsage, err
	}
	screen.print(text.Slowest(outcome) + "report: " + where + "\n")
	return code, nil
}

// start starts Ginkgo on the compiled suite.
func (o *runOptions) start(ctx context.Context, dir, recordPath string, seed int64) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(dir, "ginkgo.log"))
	if err != nil {
		return nil, fmt.Errorf("keep Ginkgo's output: %w", err)
	}
	defer log.Close()
	cmd, err := o.ginkgo(ctx, fmt.Sprintf("--seed=%d", seed))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), suite.RecordEnv+"="+recordPath, build.Env+"="+o.bin)
	cmd.Env = append(append(append(cmd.Env, o.world.env()...), o.keeper.env()...), o.suite.env()...)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Ginkgo: %w", err)
	}
	return cmd, nil
}

// ginkgo prepares the Ginkgo CLI with the filters of this run.
func (o *runOptions) ginkgo(ctx context.Context, more ...string) (*exec.Cmd, error) {
	args := []string{
		"run", fmt.Sprintf("--procs=%d", o.procs), "--no-color", "-v", "--randomize-all=false",
		"--timeout=" + o.limit().String(), "--grace-period=10s",
	}
	chosen, err := parseFilters(o.filters)
	if err != nil {
		return nil, err
	}
	args = append(append(append(args, chosen...), more...), o.suite.test)
	cmd := exec.CommandContext(ctx, filepath.Join(o.bin, build.Runner), args...)
	// Ginkgo's processes are a group: each must hear of an interruption to tear its worlds down, as it would
	// from a terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil
	}
	cmd.WaitDelay = 20 * time.Second
	return cmd, nil
}

// limit is Ginkgo's limit of the whole run: 0, which is none, where the keeper watches the time, since
// Ginkgo's would end a kept world as well.
func (o *runOptions) limit() time.Duration {
	if o.keep {
		return 0
	}
	return o.timeout
}

// late reports whether the time of the run was up; failed is Ginkgo's error.
func (o *runOptions) late(ctx context.Context, failed error, took time.Duration) bool {
	if o.keep {
		return errors.Is(context.Cause(ctx), errLate)
	}
	return failed != nil && took >= o.timeout
}

// watch shows how far the run is, and scenarios as they end, until Ginkgo does. The error is Ginkgo's.
func (o *runOptions) watch(
	ginkgo *exec.Cmd,
	follow *follower,
	screen *screen,
	earlier <-chan text.Earlier,
) error {
	ended := make(chan error, 1)
	go func() { ended <- ginkgo.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	show := func(s *record.Scenario) {
		screen.print(screen.style.Line(s) + "\n")
		// What was interrupted has shown nothing; the record has what its world held.
		if v := s.Verdict; v.State == record.Failed || v.State == record.Unproven && !v.Interrupted {
			screen.print(screen.style.Failure(s) + "\n")
		}
	}
	var known text.Earlier
	defer screen.clear()
	for {
		select {
		case known = <-earlier:
		case <-tick.C:
			follow.read(show)
			p := text.ProgressOf(follow.outcome, known, o.procs, record.Now())
			p.Kept = o.keeper.keeps()
			screen.progress(p, time.Now())
		case k := <-o.keeper.news():
			screen.print(keptText(k, typed(), worlds()))
		case err := <-ended:
			follow.read(show)
			return err
		}
	}
}

// nothingMatched says that filters have chosen nothing.
func nothingMatched(filters []string) string {
	quoted := make([]string, len(filters))
	for i, f := range filters {
		quoted[i] = strconv.Quote(f)
	}
	what := "no scenario matches " + strings.Join(quoted, " or ")
	if len(filters) == 0 {
		what = "there is no scenario"
	}
	return what + ": nemesh list shows the names and labels that there are"
}

func ginkgoSaid(dir string, err error) string {
	raw, _ := os.ReadFile(filepath.Join(dir, "ginkgo.log"))
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	lines = lines[max(0, len(lines)-40):]
	return fmt.Sprintf("the suite did not run to its end (%v). Its last lines:\n  %s\n", err,
		strings.Join(lines, "\n  "))
}

// follower reads a record while it is written.
type follower struct {
	file    *os.File
	rest    []byte
	outcome *record.Outcome
}

func openFollower(path string) (*follower, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("follow the record: %w", err)
	}
	return &follower{file: file, outcome: &record.Outcome{}}, nil
}

// read takes over what has been written since, and calls ended for each scenario that has its verdict.
func (f *follower) read(ended func(*record.Scenario)) {
	fresh, err := io.ReadAll(f.file)
	if err != nil {
		return
	}
	all := append(f.rest, fresh...)
	end := strings.LastIndexByte(string(all), '\n') + 1
	f.rest = append([]byte(nil), all[end:]...)
	err = record.Read(strings.NewReader(string(all[:end])), func(e record.Event) error {
		if s := f.outcome.Add(e); s != nil {
			ended(s)
		}
		return nil
	})
	if err != nil && !errors.Is(err, record.ErrCut) {
		fmt.Fprintln(os.Stderr, "nemesh:", err)
	}
}
