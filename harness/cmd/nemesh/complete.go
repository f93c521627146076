package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness"
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
		"backend": {harness.BackendVXLAN, harness.BackendHostGW},
		"rules":   {"iptables", harness.RulesNFTables},
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
	args := []string{"list", "scenarios", "--json"}
	if bin, err := cmd.Flags().GetString("bin"); err == nil && bin != "" {
		args = append(args, "--bin="+bin)
	}
	out, err := exec.CommandContext(ctx, self, args...).Output()
	var l listing
	if err != nil || json.Unmarshal(out, &l) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return described(labelsOf(l.Scenarios)), cobra.ShellCompDirectiveNoFileComp
}

// described adds to the label of a fault, as its description, what the table of faults says of it.
func described(labels []string) []string {
	for i, l := range labels {
		id, ok := strings.CutPrefix(l, record.FaultLabel)
		if e, known := fault.Find(id); ok && known {
			labels[i] = cobra.CompletionWithDesc(l, fmt.Sprintf("%s: %s", e.Component, e.About))
		}
	}
	return labels
}

// labelsOf lists every label once.
func labelsOf(all []scenario) []string {
	var labels []string
	for _, s := range all {
		labels = append(labels, s.Labels...)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}
