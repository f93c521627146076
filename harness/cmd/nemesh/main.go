// Command nemesh breaks an overlay network on purpose and says, packet by packet, what its pods felt.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/harness/sandbox"
)

// Exit codes (see `nemesh --help`).
const (
	exitPassed = 0
	exitFailed = 1
	exitUsage  = 2
)

// endings are the signals that end a run in good order: its worlds are torn down and its report is written.
var endings = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// exitError carries an exit code out of a command that has said all there is to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	sandbox.DispatchPart()
	os.Exit(execute(os.Args[1:]))
}

func execute(args []string) int {
	root := &cobra.Command{
		Use:   "nemesh",
		Short: "Break an overlay network on purpose and see what its pods felt",
		Long: `nemesh builds a cluster of network namespaces with a real etcd and an overlay's agents,
breaks it, and measures every packet its pods lose. It needs no root and leaves nothing behind.

Exit codes:
  0  all passed
  1  something failed
  2  something was not proven, the world could not be built, or the command line was wrong

Colours are used on a terminal only, and not when NO_COLOR is set.
Completion: source <(nemesh completion bash), or the same with zsh, fish or powershell.`,
		Example: `  nemesh doctor                   can it run here, and what will be skipped
  nemesh list                     scenarios, labels, faults, defects, invariants
  nemesh run                      every scenario
  nemesh run flannel-636          those whose name matches
  nemesh run issue:flannel-520    those with the label
  nemesh run --keep flannel-636   keep the world if it fails, and
  nemesh enter node01             look around in it
  nemesh report reports/latest    render a run again
  nemesh diff main.d this.d       what got worse between two runs`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		runCommand(),
		listCommand(),
		doctorCommand(),
		enterCommand(),
		reportCommand(),
		diffCommand(),
		explainCommand(),
		baselineCommand(),
		matrixCommand(),
		bisectCommand(),
		detectCommand(),
		newCommand(),
	)
	for _, cmd := range root.Commands() {
		completeVariant(cmd)
	}
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	var exit exitError
	switch {
	case err == nil:
		return exitPassed
	case errors.As(err, &exit):
		return int(exit)
	default:
		fmt.Fprintf(os.Stderr, "nemesh: %v\nSee: nemesh --help\n", err)
		return exitUsage
	}
}
