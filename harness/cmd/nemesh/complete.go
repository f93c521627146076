package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/cluster"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/reports/record"
)

// completeWithin bounds what a press of the tab key may take.
const completeWithin = 10 * time.Second

// complete offers values for a flag; a value's description follows a tab.
func complete(cmd *cobra.Command, flag string, values func(typed string) []string) {
	err := cmd.RegisterFlagCompletionFunc(flag,
		func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return values(typed), cobra.ShellCompDirectiveNoFileComp
		})
	if err != nil {
		panic(err) // the flag is not there: a mistake in this program
	}
}

// completeVariant offers the values of --backend and --rules where a command has them.
func completeVariant(cmd *cobra.Command) {
	for flag, values := range map[string][]string{
		"backend": {cluster.BackendVXLAN, cluster.BackendHostGW},
		"rules":   {"iptables", cluster.RulesNFTables},
	} {
		if cmd.Flags().Lookup(flag) != nil {
			complete(cmd, flag, func(string) []string { return values })
		}
	}
}

// completeLabels offers the labels of all scenarios as filters. It asks another nemesh, which may enter
// a sandbox.
func completeLabels(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	self, err := os.Executable()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completeWithin)
	defer cancel()
	args := []string{"list", "labels", "--json"}
	if bin, err := cmd.Flags().GetString("bin"); err == nil && bin != "" {
		args = append(args, "--bin="+bin)
	}
	out, err := exec.CommandContext(ctx, self, args...).Output()
	var l listing
	if err != nil || json.Unmarshal(out, &l) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return described(l.Labels), cobra.ShellCompDirectiveNoFileComp
}

// described adds to each label what it is about: of a fault's, what the table of faults says.
func described(labels []listedLabel) []string {
	var offered []string
	for _, v := range labels {
		about := fmt.Sprintf("scenarios: %d", v.Scenarios)
		id, ok := strings.CutPrefix(v.Label, record.FaultLabel)
		if e, known := fault.Find(id); ok && known {
			about = fmt.Sprintf("%s: %s", e.Component, e.About)
		}
		offered = append(offered, cobra.CompletionWithDesc(v.Label, about))
	}
	return offered
}
