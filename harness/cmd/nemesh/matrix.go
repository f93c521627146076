package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/harness/driver"
)

// matrixOptions are the flags of `nemesh matrix`.
type matrixOptions struct {
	agents                   []string
	backends, rules, etcdBin []string
	// every is what holds for all columns.
	every    worldFlags
	out, bin string
	procs    int
	timeout  time.Duration
	again    bool
}

// column is one column of the table: what is run, and what the user calls it.
type column struct {
	name  string
	world worldFlags
}

func matrixCommand() *cobra.Command {
	o := matrixOptions{}
	cmd := &cobra.Command{
		Use:   "matrix --agent NAME=PATH… [FILTER…]",
		Short: "Run scenarios against several agents and put them side by side",
		Long: `Run scenarios against several agents, and in several worlds when asked, and render one table.

What has a verdict in the output folder is not run again, so an interrupted matrix goes on where it stopped;
use --again for a fresh one. FILTER is as in nemesh run. PATH is a binary, a driver file, or the word ours.`,
		Example: `  nemesh matrix --agent ours=ours --agent flannel-0.28=/opt/flanneld-v0.28.9
  nemesh matrix --agent ours=ours --backend vxlan,host-gw kind:survival`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.agents, "agent", nil, "`NAME=PATH` of an agent; repeat it")
	f.StringSliceVar(&o.backends, "backend", nil, "backends to multiply with: vxlan, host-gw")
	f.StringSliceVar(&o.rules, "rules", nil, "rules to multiply with: iptables, nftables")
	f.StringSliceVar(&o.etcdBin, "etcd-bin", nil, "etcd `binaries` to multiply with")
	o.every.addV2(f)
	f.StringVar(&o.out, "out", filepath.Join("reports", "matrix"), "`folder` for the runs and the table")
	f.StringVar(&o.bin, "bin", "", "`folder` of the binaries (default: where nemesh is)")
	f.IntVar(&o.procs, "procs", 0, "how many scenarios run side by side (default: as nemesh run)")
	f.DurationVar(&o.timeout, "timeout", time.Hour, "when to give up on one column")
	f.BoolVar(&o.again, "again", false, "run everything, also what has a verdict")
	return cmd
}

// columns multiplies agents with worlds.
func (o matrixOptions) columns() ([]column, error) {
	if len(o.agents) == 0 {
		return nil, errors.New("no agent: give at least one --agent NAME=PATH, such as --agent ours=ours")
	}
	var all []column
	seen := map[string]bool{}
	for _, a := range o.agents {
		name, path, ok := strings.Cut(a, "=")
		if !ok || name == "" || path == "" || strings.ContainsAny(name, "/ ") {
			return nil, fmt.Errorf("--agent %s: it is NAME=PATH, the name without a space or a slash", a)
		}
		if seen[name] {
			return nil, fmt.Errorf("--agent %s: the name is there twice", name)
		}
		seen[name] = true
		for _, backend := range orNone(o.backends) {
			for _, rules := range orNone(o.rules) {
				for _, etcd := range orNone(o.etcdBin) {
					c := column{name: name, world: worldFlags{
						choice: driver.Choice{Agent: path}, backend: backend, rules: rules, etcdBin: etcd,
						etcdV2Bin: o.every.etcdV2Bin,
					}}
					c.name += suffix(o.backends, backend) + suffix(o.rules, rules) + suffix(o.etcdBin, filepath.Base(etcd))
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}

// suffix tells columns apart that differ in a value; where there is but one, there is nothing to tell.
func suffix(values []string, value string) string {
	if len(values) < 2 {
		return ""
	}
	return " " + value
}

func orNone(values []string) []string {
	if len(values) == 0 {
		return []string{""}
	}
	return values
}

// reports is the folder with the runs of a column.
func (o matrixOptions) reports(c column) string {
	return filepath.Join(o.out, strings.ReplaceAll(c.name, " ", "+"))
}

func (o matrixOptions) run(ctx context.Context, filters []string) error {
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	columns, err := o.columns()
	if err != nil {
		return err
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if o.bin, err = findBin(o.bin); err != nil {
		return err
	}
	if _, err := parseFilters(filters); err != nil {
		return err
	}
	names := make([]string, 0, len(columns))
	for i := range columns {
		if err := columns[i].world.resolve(ctx, o.bin); err != nil {
			return fmt.Errorf("%s: %w", columns[i].name, err)
		}
		names = append(names, columns[i].name)
	}
	scenarios, err := chosen(ctx, o.bin, filters)
	if err != nil {
		return err
	}
	table := compare.NewTable(scenarios, names)
	for i, c := range columns {
		if !o.again {
			if err := table.AddRuns(i, o.reports(c)); err != nil {
				return err
			}
		}
		if err := o.fill(ctx, table, i, c); err != nil {
			return err
		}
		if err := table.Write(o.out); err != nil {
			return err
		}
		if ctx.Err() != nil {
			fmt.Println("interrupted: the same command goes on from here")
			return exitError(exitUsage)
		}
	}
	fmt.Printf("%s\n%s\n", filepath.Join(o.out, "matrix.md"), filepath.Join(o.out, "matrix.html"))
	for i, c := range columns {
		if missing := table.Missing(i); len(missing) > 0 {
			fmt.Printf("%s: %d scenarios have no verdict; the same command tries them again\n", c.name, len(missing))
			err = exitError(exitUsage)
		}
	}
	return err
}

// fill runs what a column lacks and adds it to the table. The runs' own exit codes say what the table says.
func (o matrixOptions) fill(ctx context.Context, table *compare.Table, at int, c column) error {
	missing := table.Missing(at)
	fmt.Printf("%s: %d of %d scenarios to run\n", c.name, len(missing), len(table.Scenarios))
	if len(missing) == 0 {
		return nil
	}
	one := another{
		bin: o.bin, reports: o.reports(c), procs: o.procs, timeout: o.timeout,
		world: c.world.args(), filters: exactly(missing...), out: os.Stdout,
	}
	if _, err := one.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return table.AddRuns(at, o.reports(c))
}
