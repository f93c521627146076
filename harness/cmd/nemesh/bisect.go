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

	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/harness/driver"
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
	all, err := compare.Versions(o.agents)
	if err != nil {
		return fmt.Errorf("--agents: %w", err)
	}
	good, err := compare.FindVersion(all, o.good)
	if err != nil {
		return fmt.Errorf("--good: %w", err)
	}
	bad, err := compare.FindVersion(all, o.bad)
	if err != nil {
		return fmt.Errorf("--bad: %w", err)
	}
	if o.bin, err = findBin(o.bin); err != nil {
		return err
	}
	scenario, err := o.theScenario(ctx)
	if err != nil {
		return err
	}
	if err := o.checkEtcd(ctx, all); err != nil {
		return err
	}
	runs := 0
	candidates, err := compare.Bisect(all, good, bad, func(agent string) (compare.Result, error) {
		runs++
		return o.ask(ctx, agent, scenario)
	})
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
		fmt.Println(c)
	}
	return nil
}

// checkEtcd says beforehand that an agent needs another etcd, so that it is not passed over for that. What
// else is wrong with a binary is said when it is its turn.
func (o bisectOptions) checkEtcd(ctx context.Context, all []string) error {
	var needs *needsV2Error
	for _, agent := range all {
		world := o.world
		world.choice = driver.Choice{Agent: agent}
		if err := world.resolve(ctx, o.bin); errors.As(err, &needs) {
			return err
		}
	}
	return nil
}

// theScenario finds the one scenario that is meant.
func (o bisectOptions) theScenario(ctx context.Context) (string, error) {
	names, err := chosen(ctx, o.bin, []string{o.scenario})
	if err != nil {
		return "", err
	}
	if len(names) > 1 {
		return "", fmt.Errorf("--scenario %q matches %d scenarios, such as %q and %q: say which", o.scenario,
			len(names), names[0], names[1])
	}
	return names[0], nil
}

// ask runs the scenario against one agent.
func (o bisectOptions) ask(ctx context.Context, agent, scenario string) (compare.Result, error) {
	world := o.world
	world.choice = driver.Choice{Agent: agent}
	fmt.Printf("\n%s\n", filepath.Base(agent))
	if err := world.resolve(ctx, o.bin); err != nil {
		fmt.Printf("gives no verdict: %v\n", err)
		return compare.Result{}, nil
	}
	one := another{
		bin: o.bin, reports: filepath.Join(o.out, filepath.Base(agent)), procs: 1,
		timeout: 10 * time.Minute, world: world.args(), filters: exactly(scenario), out: os.Stdout,
	}
	run, err := one.run(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", ctx.Err())
	}
	return run.Result(scenario), err
}
