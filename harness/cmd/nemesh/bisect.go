package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/matrix"
	"github.com/nemesh/nemesh/reports/record"
)

// bisectOptions are the flags of `nemesh bisect`.
type bisectOptions struct {
	scenario, good, bad string
	agents, out, bin    string
	world               worldFlags
}

func bisectCommand() *cobra.Command {
	o := bisectOptions{}
	cmd := &cobra.Command{
		Use:   "bisect --scenario S --good VERSION --bad VERSION --agents DIR",
		Short: "Find the version of an agent at which a scenario changes its verdict",
		Long: `Find the first binary, in the order of the versions in their names, at which a scenario changes
its verdict, with as few runs as a binary search needs. The good and the bad one are taken at
your word; either may be the older. A version that gives no verdict is passed over.`,
		Example: `  nemesh bisect --scenario 'flannel-636 loses' --bad 0.8.0 --good 0.28.9 --agents /opt/f`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.scenario, "scenario", "", "regular expression that matches one `scenario`")
	f.StringVar(&o.good, "good", "", "`version` or file at which it passes")
	f.StringVar(&o.bad, "bad", "", "`version` or file at which it fails")
	f.StringVar(&o.agents, "agents", "", "`folder` of binaries with versions in their names")
	f.StringVar(&o.out, "out", filepath.Join("reports", "bisect"), "`folder` for the runs")
	f.StringVar(&o.bin, "bin", "", "`folder` of the binaries (default: where nemesh is)")
	o.world.addVariant(f)
	o.world.addV2(f)
	for _, needed := range []string{"scenario", "good", "bad", "agents"} {
		if err := cmd.MarkFlagRequired(needed); err != nil {
			panic(err) // the flag is declared above
		}
	}
	return cmd
}

func (o bisectOptions) run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	all, err := o.binaries()
	if err != nil {
		return err
	}
	good, err := matrix.Find(all, o.good)
	if err != nil {
		return fmt.Errorf("--good: %w", err)
	}
	bad, err := matrix.Find(all, o.bad)
	if err != nil {
		return fmt.Errorf("--bad: %w", err)
	}
	finder := runOptions{bin: o.bin}
	if err := finder.findBinaries(); err != nil {
		return err
	}
	o.bin = finder.bin
	scenario, err := o.theScenario(ctx)
	if err != nil {
		return err
	}
	if err := o.checkEtcd(ctx, all); err != nil {
		return err
	}
	runs := 0
	candidates, err := matrix.Bisect(
		ctx,
		all,
		good,
		bad,
		func(ctx context.Context, b matrix.Binary) (matrix.Answer, error) {
			runs++
			return o.ask(ctx, b, scenario)
		},
	)
	if err != nil {
		return err
	}
	fmt.Printf("\nafter %d runs of %q:\n", runs, scenario)
	if len(candidates) > 1 {
		fmt.Printf("the verdict changes at one of these, which gave none but the last:\n")
	} else {
		fmt.Printf("the verdict changes at ")
	}
	for _, c := range candidates {
		fmt.Println(c.Path)
	}
	return nil
}

// binaries lists the executables in the folder, in the order of their versions.
func (o bisectOptions) binaries() ([]matrix.Binary, error) {
	dir, err := filepath.Abs(o.agents)
	if err != nil {
		return nil, fmt.Errorf("--agents: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("--agents: %w", err)
	}
	var paths []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			paths = append(paths, path)
		}
	}
	if len(paths) < 2 {
		return nil, fmt.Errorf("--agents: %s has %d executables: two are needed at least", dir, len(paths))
	}
	return matrix.Order(paths)
}

// checkEtcd says beforehand that an agent needs another etcd, so that it is not passed over for that. What
// else is wrong with a binary is said when it is its turn.
func (o bisectOptions) checkEtcd(ctx context.Context, all []matrix.Binary) error {
	var needs *needsV2Error
	for _, b := range all {
		world := o.world
		world.choice = driver.Choice{Agent: b.Path}
		if err := world.resolve(ctx, o.bin); errors.As(err, &needs) {
			return err
		}
	}
	return nil
}

// theScenario finds the one scenario that is meant.
func (o bisectOptions) theScenario(ctx context.Context) (string, error) {
	names, err := matrixOptions{bin: o.bin}.scenarios(ctx, []string{o.scenario})
	if err != nil {
		return "", err
	}
	if len(names) > 1 {
		return "", fmt.Errorf(
			"--scenario %q matches %d scenarios, such as %q and %q: say which",
			o.scenario,
			len(names),
			names[0],
			names[1],
		)
	}
	return names[0], nil
}

// ask runs the scenario against one binary.
func (o bisectOptions) ask(ctx context.Context, b matrix.Binary, scenario string) (matrix.Answer, error) {
	world := o.world
	world.choice = driver.Choice{Agent: b.Path}
	reports, err := filepath.Abs(filepath.Join(o.out, b.Name()))
	if err != nil {
		return matrix.Unknown, fmt.Errorf("--out: %w", err)
	}
	fmt.Printf("\n%s\n", b.Name())
	if err := world.resolve(ctx, o.bin); err != nil {
		fmt.Printf("gives no verdict: %v\n", err)
		return matrix.Unknown, nil
	}
	latest := filepath.Join(reports, "latest")
	before, _ := filepath.EvalSymlinks(latest) // of an earlier bisection, if any
	one := another{bin: o.bin, reports: reports, procs: 1, timeout: 10 * time.Minute,
		world: world.args(), filters: exactly(scenario), out: os.Stdout}
	if err := one.run(ctx); err != nil {
		return matrix.Unknown, err
	}
	if ctx.Err() != nil {
		return matrix.Unknown, fmt.Errorf("interrupted: %w", ctx.Err())
	}
	run, err := filepath.EvalSymlinks(latest)
	if errors.Is(err, os.ErrNotExist) || err == nil && run == before {
		return matrix.Unknown, nil // it said why it could not be run
	}
	if err != nil {
		return matrix.Unknown, fmt.Errorf("find the run: %w", err)
	}
	outcome, err := matrix.ReadRun(run)
	if err != nil {
		return matrix.Unknown, err
	}
	for _, s := range outcome.Scenarios {
		if s.Name == scenario && s.Verdict != nil {
			switch s.Verdict.State {
			case record.Passed:
				return matrix.Good, nil
			case record.Failed:
				return matrix.Bad, nil
			}
		}
	}
	return matrix.Unknown, nil
}
