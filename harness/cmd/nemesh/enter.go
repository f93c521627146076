package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/enter"
)

func enterCommand() *cobra.Command {
	var world string
	cmd := &cobra.Command{
		Use:   "enter NODE [CMD…]",
		Short: "Open a shell on a node of a running or kept world",
		Long: `Open a shell, or run a command, in the network and mount namespaces of a node, while its world
runs or is kept (nemesh run --keep). ip, ss, tcpdump, nft and the like see that node only; kill
and ps see the whole sandbox. The command ends with the world. The machine of etcd can be entered too.

The user who started a run may enter its worlds, and root may enter all. tcpdump needs -Z root: a
sandbox without root has no other user that it could become.

The exit code is that of the command; 2 where there is no such world or node.`,
		Example: `  nemesh enter node01
  nemesh enter node02 ip -d link show flannel.1
  nemesh enter node02 tcpdump -Z root -ni eth0 udp port 8472
  nemesh enter --world 2718281828 node01 ss -tn      where several worlds are running`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := enter.Find()
			if err != nil {
				return err
			}
			w, err := enter.Choose(all, world, args[0])
			if err != nil {
				return err
			}
			command := args[1:]
			if len(command) > 0 && command[0] == "--" { // as one types it for kubectl exec
				command = command[1:]
			}
			if len(command) == 0 {
				command = []string{shell()}
				if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
					fmt.Fprintf(os.Stderr, "%s of world %s (%s); exit leaves it\n", args[0], w.ID, w.Scenario)
				}
			}
			code, err := w.Enter(args[0], command)
			if err != nil {
				return err
			}
			if code != 0 {
				return exitError(code)
			}
			return nil
		},
		ValidArgsFunction: completeNodes,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the node are the command's
	f.StringVar(&world, "world", "", "the `id` of the world, where several are running")
	complete(cmd, "world", func(string) []string {
		var ids []string
		all, _ := enter.Find()
		for _, w := range all {
			ids = append(ids, w.ID+"\t"+w.Scenario)
		}
		return ids
	})
	return cmd
}

// shell is the user's, where it is one that a script may count on.
func shell() string {
	if s := os.Getenv("SHELL"); strings.HasSuffix(s, "sh") {
		if _, err := os.Stat(s); err == nil {
			return s
		}
	}
	return "/bin/sh"
}

// completeNodes offers the nodes of running worlds, and files for the command after the node.
func completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	all, _ := enter.Find() // without a world there is nothing to offer
	world, _ := cmd.Flags().GetString("world")
	return nodesOf(all, world), cobra.ShellCompDirectiveNoFileComp
}

// nodesOf lists the nodes of one world, or those of all worlds if id is "". Each name is listed once.
func nodesOf(all []enter.World, id string) []string {
	var nodes []string
	for _, w := range all {
		if id == "" || w.ID == id {
			nodes = append(nodes, w.Nodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
