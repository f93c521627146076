package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// finding is one thing that doctor has looked at.
type finding struct {
	// What was looked at; Has says what is there, or why it is not.
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Has  string `json:"has,omitempty"`
	// Required things keep everything from running. Without says what does not run or is less good
	// otherwise.
	Required bool   `json:"required"`
	Without  string `json:"without,omitempty"`
	// Fix is what to type.
	Fix string `json:"fix,omitempty"`
}

func doctorCommand() *cobra.Command {
	var bin string
	var asJSON, inside bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say whether scenarios can run here, what will be skipped, and what to type to change that",
		Long: `Try, one by one, what scenarios need: a sandbox, each feature of the kernel in a scratch
namespace inside it, programs, binaries, room. Nothing on the machine is changed, and nothing
is fixed: the line that would is printed.

Exit codes: 0 nemesh run can do its job, if with some scenarios skipped; 2 it cannot.`,
		Example: `  nemesh doctor
  sudo nemesh doctor                     what root can have beyond that
  nemesh doctor --json | jq '.[] | select(.ok | not)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if inside {
				return insideSandbox(cmd.OutOrStdout())
			}
			o := runOptions{bin: bin}
			if err := o.locate(); err != nil {
				return err
			}
			all := examine(cmd.Context(), o.bin)
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				if err := out.Encode(all); err != nil {
					return err
				}
			} else {
				tellHealth(cmd.OutOrStdout(), all)
			}
			for _, f := range all {
				if f.Required && !f.OK {
					return exitError(exitUsage)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "as JSON, for programs")
	f.StringVar(&bin, "bin", "", "`folder` of the binaries (default: where nemesh is)")
	f.BoolVar(&inside, insideFlag, false, "")
	_ = f.MarkHidden(insideFlag)
	return cmd
}

// insideFlag has doctor look around in a sandbox.
const insideFlag = "inside"

// examine looks at everything.
func examine(ctx context.Context, bin string) []finding {
	all := trySandbox(ctx)
	all = append(all, programs(exec.LookPath)...)
	return append(all, binaries(bin)...)
}

// trySandbox enters a sandbox as nemesh run does, and looks at the kernel there.
func trySandbox(ctx context.Context) []finding {
	box := finding{What: "sandbox", Required: true}
	self, err := os.Executable()
	if err != nil {
		box.Has = err.Error()
		return []finding{box}
	}
	cmd := exec.CommandContext(ctx, self, "doctor", "--"+insideFlag)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var inside []finding
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &inside)
	}
	if err != nil {
		return []finding{refusal(box, strings.TrimSpace(said.String()), err)}
	}
	box.OK, box.Has = true, "user, mount, pid and network namespaces"
	if os.Geteuid() == 0 {
		box.Has = "mount, pid and network namespaces, as root"
	}
	return append([]finding{box}, inside...)
}

// refusal puts the sandbox's own explanation into a finding.
func refusal(box finding, said string, err error) finding {
	first, rest, _ := strings.Cut(strings.TrimPrefix(said, "nemesh: "), "\n")
	box.Has = first
	if box.Has == "" {
		box.Has = err.Error()
	}
	box.Without = "nothing runs, and the kernel cannot be looked at"
	box.Fix = "sudo nemesh run, which needs no user namespaces"
	for line := range strings.Lines(rest) {
		if _, command, ok := strings.Cut(line, "once: "); ok {
			box.Fix = strings.TrimSpace(command)
		}
	}
	return box
}

// programs looks for those that some scenarios use.
func programs(look func(string) (string, error)) []finding {
	var all []finding
	for _, p := range []struct{ name, without, fix string }{
		{
			"iptables", "a real flanneld cannot be tested: it writes its rules with it; overlayd needs none",
			"sudo apt-get install iptables",
		},
		{
			"iptables-legacy",
			"overlayd passes packets through rules of the older kind with it; tests of that are skipped",
			"sudo apt-get install iptables",
		},
		{
			"chromium", "tests that open the report in a browser; scenarios need none",
			"sudo apt-get install chromium",
		},
	} {
		f := finding{What: p.name, Without: p.without, Fix: p.fix}
		for _, name := range []string{p.name, "/usr/sbin/" + p.name, "/sbin/" + p.name} {
			if path, err := look(name); err == nil {
				f.OK, f.Has = true, path
				break
			}
		}
		if !f.OK {
			f.Has = "not in PATH"
		}
		all = append(all, f)
	}
	return all
}

// binaries looks for what `make build` makes.
func binaries(bin string) []finding {
	var all []finding
	for _, b := range []struct{ name, without string }{
		{"ginkgo", "no scenario runs"},
		{"scenarios.test", "no scenario runs"},
		{"overlayd", "there is no agent to test but another vendor's"},
		{"overlay-cni", "no pod is made"},
		{"bridge", "no pod is made"},
		{"host-local", "no pod is made"},
		{"overlayd-defects", "specs in which the agent has a historic defect fail"},
		{"overlay-cni-defects", "specs in which the plugin has a historic defect fail"},
	} {
		f := finding{What: "bin/" + b.name, Required: true, Without: b.without, Fix: "make build"}
		info, err := os.Stat(filepath.Join(bin, b.name))
		switch {
		case errors.Is(err, os.ErrNotExist):
			f.Has = "not in " + bin
		case err != nil:
			f.Has = err.Error()
		case info.Mode()&0o111 == 0:
			f.Has = "not executable"
		default:
			f.OK, f.Has = true, filepath.Join(bin, b.name)
		}
		all = append(all, f)
	}
	return all
}

// tellHealth writes the findings for people, and what follows from them.
func tellHealth(w io.Writer, all []finding) {
	var broken, skipped int
	for _, f := range all {
		mark := "OK     "
		if !f.OK {
			mark = "missing"
		}
		fmt.Fprintf(w, "%s  %-23s %s\n", mark, f.What, f.Has)
		if f.OK {
			continue
		}
		if f.Required {
			broken++
		} else {
			skipped++
		}
		if f.Without != "" {
			fmt.Fprintf(w, "           without it: %s\n", f.Without)
		}
		if f.Fix != "" {
			fmt.Fprintf(w, "           to have it: %s\n", f.Fix)
		}
	}
	switch {
	case broken > 0:
		fmt.Fprintf(w, "\nScenarios cannot run: %d of what they need is missing.\n", broken)
	case skipped > 0:
		fmt.Fprintf(w, "\nScenarios can run: nemesh run. Missing and not needed by most: %d.\n", skipped)
	default:
		fmt.Fprint(w, "\nScenarios can run, all of them: nemesh run.\n")
	}
}
