package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nemesh/nemesh/reports/explain"
)

func explainCommand() *cobra.Command {
	most := 20
	cmd := &cobra.Command{
		Use:   "explain FILE…",
		Short: "Say where the packets of a reported trace ended",
		Long: `Read traces as people paste them and say, flow by flow, where the packets ended.

A FILE is a kernel log with iptables TRACE lines, the output of "nft monitor trace" or tcpdump, a pcap or
pcapng, or a listing of "ip neigh", "ip route" or "bridge fdb" beside them; "-" is standard input. Give the
files of all machines at once, in any order. Which machine a file is of is told by the log's lines, else by
the file's name; MACHINE=FILE says it where neither does.

Exit codes: 0 the traces are explained, 2 a file could not be read or holds no trace.`,
		Example: `  nemesh explain fixtures/traces/flannel-636-pod-to-pod-*.log
  nemesh explain node01.log node04.log node04-neigh.txt node04=capture.pcap
  ssh node04 journalctl -k | nemesh explain - node01.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("explain needs a file with a trace, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return explainFiles(args, most, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&most, "most", most, "how many flows to tell, the most important first; 0 for all")
	return cmd
}

// explainFiles reads the files and prints the answer. What cannot be read is said, and the rest is
// explained.
func explainFiles(files []string, most int, stdin io.Reader, stdout, stderr io.Writer) error {
	if most < 0 {
		return fmt.Errorf("--most %d: at least 0", most)
	}
	e := explain.New()
	code, read := exitPassed, 0
	for _, f := range files {
		if err := explainFile(e, f, stdin); err != nil {
			fmt.Fprintf(stderr, "nemesh: %v\n", err)
			code = exitUsage
			continue
		}
		read++
	}
	if read == 0 {
		return exitError(code)
	}
	answer, err := e.Answer()
	if err != nil {
		fmt.Fprintf(stderr, "nemesh: %v\n", err)
		return exitError(exitUsage)
	}
	fmt.Fprint(stdout, answer.Text(most))
	if code != exitPassed {
		return exitError(code)
	}
	return nil
}

// explainFile reads one file, or MACHINE=FILE where there is no file of that whole name.
func explainFile(e *explain.Explainer, arg string, stdin io.Reader) error {
	if arg == "-" {
		return e.Read("standard input", stdin)
	}
	machine, path := "", arg
	if name, rest, ok := strings.Cut(arg, "="); ok && name != "" && !strings.Contains(name, "/") {
		if _, err := os.Stat(arg); err != nil {
			machine, path = name, rest
		}
	}
	if machine != "" && path == "-" {
		return e.ReadFrom(machine, "standard input", stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot read a trace: %w", err)
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory: name the files in it, such as %s/*.log", path,
			strings.TrimSuffix(path, "/"))
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read a trace: %w", err)
	}
	defer file.Close()
	if machine != "" {
		return e.ReadFrom(machine, path, file)
	}
	return e.Read(path, file)
}
