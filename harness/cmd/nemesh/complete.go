package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/cluster"
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
	var offered []string
	for _, v := range l.Labels {
		offered = append(offered, fmt.Sprintf("%s\tscenarios: %d", v.Label, v.Scenarios))
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}
