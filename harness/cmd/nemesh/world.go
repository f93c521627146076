package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/compare"
	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/reports/record"
)

// worldFlags are the flags that say what is tested, and on what.
type worldFlags struct {
	choice  driver.Choice
	backend string
	rules   string
	etcdBin string
	// etcdV2Bin takes the place of the etcd that is built in for agents that need the v2 API, and only those.
	etcdV2Bin string
	baseline  string
	// name and version are those of the agent, once it has been asked.
	name, version string
}

// add declares the flags. What the environment says is their default, so that a flag wins over it.
func (w *worldFlags) add(f *pflag.FlagSet) {
	env := driver.FromEnv()
	f.StringVar(
		&w.choice.Agent,
		"agent",
		env.Agent,
		"the agent to test: a flanneld or overlayd `binary`, or a driver "+
			"file (*.yaml); default: this repository's overlayd ["+driver.AgentEnv+"]",
	)
	f.StringVar(
		&w.choice.CNIConf,
		"cni-conf",
		env.CNIConf,
		"a CNI configuration list `file` to make pods with ["+
			driver.CNIConfEnv+"]",
	)
	f.StringSliceVar(
		&w.choice.CNIDirs,
		"cni-bin-dir",
		env.CNIDirs,
		"a `folder` with the vendor's own CNI plugins ["+
			driver.CNIDirsEnv+"]",
	)
	w.addVariant(f)
	f.StringVar(&w.baseline, "baseline", "", "expected failures: a `file`, a folder, or \"none\"; default: "+
		"fixtures/baselines of the repository")
}

// addVariant declares the flags that a matrix multiplies agents with.
func (w *worldFlags) addVariant(f *pflag.FlagSet) {
	f.StringVar(&w.backend, "backend", os.Getenv(cluster.BackendEnv), "how the overlay carries packets: "+
		cluster.BackendVXLAN+" or "+cluster.BackendHostGW+" ["+cluster.BackendEnv+"]")
	f.StringVar(&w.rules, "rules", os.Getenv(cluster.RulesEnv), "whether the agent uses iptables or nftables ["+
		cluster.RulesEnv+"]")
	f.StringVar(
		&w.etcdBin,
		"etcd-bin",
		os.Getenv(cluster.EtcdBinaryEnv),
		"an etcd `binary` (3.4 or newer) as the "+
			"control plane, instead of the one built in ["+cluster.EtcdBinaryEnv+"]",
	)
}

// addV2 declares the etcd of agents that need the v2 API, for commands that run several agents.
func (w *worldFlags) addV2(f *pflag.FlagSet) {
	const v2 = "an etcd `binary` (3.4 or 3.5) for those agents only that speak etcd's v2 API, " +
		"such as flannel before v0.18"
	f.StringVar(&w.etcdV2Bin, "etcd-v2-bin", "", v2)
}

// needsV2Error says that an agent cannot do with the etcd that is built in.
type needsV2Error struct{ agent string }

func (e *needsV2Error) Error() string {
	return e.agent + " speaks etcd's v2 API, which the etcd that is built in does not have: bring an etcd " +
		"3.4 or 3.5 with --etcd-bin (or, where several agents are run, --etcd-v2-bin)"
}

// resolve makes paths absolute, opens the driver, checks it, and asks the agent for its version.
func (w *worldFlags) resolve(ctx context.Context, bin string) error {
	var err error
	if w.choice, err = w.choice.Absolute(); err != nil {
		return err
	}
	if w.backend != "" && w.backend != cluster.BackendVXLAN && w.backend != cluster.BackendHostGW {
		return fmt.Errorf("--backend %s: it is %s or %s", w.backend, cluster.BackendVXLAN, cluster.BackendHostGW)
	}
	if w.rules != "" && w.rules != "iptables" && w.rules != cluster.RulesNFTables {
		return fmt.Errorf("--rules %s: it is iptables or %s", w.rules, cluster.RulesNFTables)
	}
	for flag, path := range map[string]*string{"--etcd-bin": &w.etcdBin, "--etcd-v2-bin": &w.etcdV2Bin} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err == nil {
			_, err = os.Stat(*path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	if w.baseline != "" && w.baseline != "none" {
		if _, err := os.Stat(w.baseline); err != nil {
			return fmt.Errorf("--baseline: %w (write it with: nemesh baseline)", err)
		}
	}
	d, err := driver.Open(w.choice, bin)
	if err != nil {
		return err
	}
	if err := d.Check(); err != nil {
		return err
	}
	if driver.NeedsV2(d) && w.etcdBin == "" {
		if w.etcdV2Bin == "" {
			return &needsV2Error{agent: w.choice.Agent}
		}
		w.etcdBin = w.etcdV2Bin
	}
	w.name = d.Name()
	w.version, err = driver.VersionOf(ctx, d)
	return err
}

// env tells the suite.
func (w *worldFlags) env() []string {
	return append(w.choice.Env(), cluster.BackendEnv+"="+w.backend, cluster.RulesEnv+"="+w.rules,
		cluster.EtcdBinaryEnv+"="+w.etcdBin)
}

// args are the flags with which another nemesh tests the same.
func (w *worldFlags) args() []string {
	args := []string{"--agent=" + w.choice.Agent, "--cni-conf=" + w.choice.CNIConf}
	for _, d := range w.choice.CNIDirs {
		args = append(args, "--cni-bin-dir="+d)
	}
	return append(args, "--backend="+w.backend, "--rules="+w.rules, "--etcd-bin="+w.etcdBin)
}

// compare compares a run with the expected failures of its agent. It returns the run's own exit code and no
// text where there are none. Only a whole run says how things are now: one that was cut off is no baseline.
func (w *worldFlags) compare(bin string, o *record.Outcome, own int, whole bool) (string, int, error) {
	if w.baseline == "none" {
		return "", own, nil
	}
	shipped := filepath.Join(filepath.Dir(bin), "fixtures", "baselines") // beside the folder of the binaries
	b, found, err := compare.FindBaseline(cmp.Or(w.baseline, shipped), w.name, w.version)
	if err != nil || !found {
		return "", own, err
	}
	c := b.Compare(compare.Of(o, ""))
	said := c.Text()
	if whole && c.Changed() {
		said += "  if this is how it is now: nemesh baseline\n"
	}
	return said, c.Exit(), nil
}
