// Command overlayd is the agent of a flannel-compatible overlay network. It leases a subnet for its node in
// etcd, writes it for the CNI plugin, and keeps the kernel's devices, routes, neighbours and rules.
//
// Exit codes: 0 after SIGTERM or SIGINT, and the data plane stays; 1 after an error that a restart may fix;
// 64 for a wrong command line. A second signal kills it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/nemesh/nemesh/overlay/agent"
	"github.com/nemesh/nemesh/overlay/defect"
)

// exitUsage is EX_USAGE of sysexits.h. It is not 2, with which Go ends a program that panics: a service
// manager that does not restart after one must restart after the other.
const exitUsage = 64

func main() { os.Exit(run()) }

func run() int {
	opts, err := agent.ParseOptions(os.Args[1:], os.LookupEnv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "overlayd:", err)
		return exitUsage
	case opts.Version:
		fmt.Println("overlayd", version())
		return 0
	case opts.ListDefects:
		for _, d := range defect.Built() {
			fmt.Printf("%s\t%s\n", d, d.About())
		}
		return 0
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(opts.LogLevel)); err != nil {
		fmt.Fprintf(os.Stderr, "overlayd: --log-level %q: debug, info, warn or error\n", opts.LogLevel)
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // the next signal has its usual effect
	if opts.Leave {
		err = agent.Leave(ctx, opts, log)
	} else {
		err = serve(ctx, opts, log)
	}
	if err != nil {
		log.Error("ending", "err", err)
		return 1
	}
	if !opts.Leave {
		log.Info("ending; the data plane stays in place")
	}
	return 0
}

// serve runs the agent; SIGHUP has it look at everything again.
func serve(ctx context.Context, opts agent.Options, log *slog.Logger) error {
	a, err := agent.New(opts, log)
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	if !opts.Defects.Has(defect.HangupEnds) {
		signal.Notify(hangups, syscall.SIGHUP)
	}
	go func() {
		for range hangups {
			a.Reload()
		}
	}()
	return a.Run(ctx)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
