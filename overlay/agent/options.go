package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/nemesh/nemesh/overlay/defect"
)

// Options are the settings from the command line and the environment. Flags and defaults are flannel's where
// flannel has them (etcd mode, v0.28). --help lists the others last.
type Options struct {
	EtcdEndpoints                         []string
	EtcdPrefix                            string
	EtcdKeyFile, EtcdCertFile, EtcdCAFile string
	EtcdUsername, EtcdPassword            string
	EtcdPasswordFile                      string
	EtcdTimeout, EtcdCheck                time.Duration

	Ifaces, IfacePatterns []string
	IfaceCanReach         string
	PublicIP, PublicIPv6  netip.Addr
	SubnetFile            string

	// RenewMargin is in minutes and IPTablesResync in seconds, as flannel's flags are.
	RenewMargin, IPTablesResync    int
	LeaseTTL, LeaseRenew, PeerHold time.Duration
	Grace, Resync                  time.Duration
	IPMasq, MasqRandomDisable      bool
	ForwardRules, BlackholeRoute   bool
	StateDir, NodeName, LogLevel   string
	Defects                        defect.Set
	HealthzIP                      string
	HealthzPort                    int
	EtcdUnseen                     time.Duration
	Leave, Version, ListDefects    bool
}

// list is a flag that may be given several times.
type list struct{ values *[]string }

func (l list) String() string { return "" }

func (l list) Set(v string) error {
	*l.values = append(*l.values, v)
	return nil
}

// commaList is a flag with a list in one value, which replaces the default.
type commaList struct{ values *[]string }

func (l commaList) String() string {
	if l.values == nil {
		return ""
	}
	return strings.Join(*l.values, ",")
}

func (l commaList) Set(v string) error {
	*l.values = strings.Split(v, ",")
	return nil
}

type addrFlag struct{ addr *netip.Addr }

func (a addrFlag) String() string { return "" }

func (a addrFlag) Set(v string) (err error) {
	if v == "" {
		return nil
	}
	*a.addr, err = netip.ParseAddr(v)
	return err
}

// ErrUsage marks an error in the command line. Starting the agent again does not help.
var ErrUsage = errors.New("usage")

// ParseOptions reads the command line, then the environment for what it leaves out: OVERLAYD_NAME, then
// FLANNELD_NAME, with the flag's name in capitals and underscores. Output is where --help goes.
func ParseOptions(args []string, lookup func(string) (string, bool), output io.Writer) (Options, error) {
	o := Options{EtcdEndpoints: []string{"http://127.0.0.1:4001", "http://127.0.0.1:2379"}}
	f := flag.NewFlagSet("overlayd", flag.ContinueOnError)
	f.SetOutput(output)
	defects := o.define(f)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%w: %q is not a flag; overlayd takes flags only (see --help)", ErrUsage, f.Arg(0))
	}
	if err := fromEnvironment(f, lookup); err != nil {
		return o, err
	}
	var err error
	if o.Defects, err = defect.Parse(*defects); err != nil {
		return o, fmt.Errorf("%w: --defect: %w", ErrUsage, err)
	}
	return o, o.validate()
}

// define declares the flags. It returns where --defect gathers its values.
func (o *Options) define(f *flag.FlagSet) *[]string {
	host, _ := os.Hostname()
	f.Var(commaList{&o.EtcdEndpoints}, "etcd-endpoints", "etcd `URLs`, separated by commas")
	f.StringVar(&o.EtcdPrefix, "etcd-prefix", "/coreos.com/network", "where the network's keys are in etcd")
	f.StringVar(&o.EtcdKeyFile, "etcd-keyfile", "", "private key `file` of the client certificate")
	f.StringVar(&o.EtcdCertFile, "etcd-certfile", "", "client certificate `file`")
	f.StringVar(&o.EtcdCAFile, "etcd-cafile", "", "`file` with the authorities that sign etcd's certificate")
	f.StringVar(&o.EtcdUsername, "etcd-username", "", "user `name` at etcd")
	f.StringVar(&o.EtcdPassword, "etcd-password", "", "password at etcd; better set in the environment")
	f.StringVar(
		&o.EtcdPasswordFile,
		"etcd-password-file",
		"",
		"`file` with the password at etcd, which process lists do not show",
	)
	f.Var(list{&o.Ifaces}, "iface", "uplink, by `name` or address; may be repeated")
	f.Var(list{&o.IfacePatterns}, "iface-regex", "uplink, by a `pattern` of name or address; may be repeated")
	f.StringVar(&o.IfaceCanReach, "iface-can-reach", "", "take the uplink that leads to this `address`")
	f.Var(
		addrFlag{&o.PublicIP},
		"public-ip",
		"`address` at which others reach this node (default: the uplink's)",
	)
	f.Var(addrFlag{&o.PublicIPv6}, "public-ipv6", "IPv6 `address` at which others reach this node")
	f.StringVar(&o.SubnetFile, "subnet-file", "/run/flannel/subnet.env", "`file` for the CNI plugin")
	f.IntVar(
		&o.RenewMargin,
		"subnet-lease-renew-margin",
		60,
		"renew at the latest this many `minutes` before the end",
	)
	f.BoolVar(&o.IPMasq, "ip-masq", false, "masquerade what pods send out of the network")
	f.BoolVar(&o.MasqRandomDisable, "ip-masq-fully-random-disable", false, "masquerade without random ports")
	f.BoolVar(&o.ForwardRules, "iptables-forward-rules", true, "accept forwarding from and to the network")
	f.BoolVar(
		&o.BlackholeRoute,
		"ip-blackhole-route",
		false,
		"drop what is sent to pods while no bridge is there",
	)
	f.IntVar(&o.IPTablesResync, "iptables-resync", 0, "like --resync, in `seconds`")
	f.DurationVar(
		&o.LeaseTTL,
		"lease-ttl",
		24*time.Hour,
		"how long the lease lives unless renewed; whole seconds",
	)
	f.DurationVar(&o.LeaseRenew, "lease-renew", 0, "time between renewals (default: a third of the lease)")
	f.DurationVar(&o.PeerHold, "peer-hold", 24*time.Hour, "how long a peer is kept after its lease ended")
	f.DurationVar(&o.EtcdTimeout, "etcd-timeout", 2*time.Second, "when to give up on a silent etcd endpoint")
	f.DurationVar(
		&o.EtcdCheck,
		"etcd-check",
		4*time.Second,
		"time between two looks whether etcd still answers",
	)
	f.DurationVar(&o.Grace, "start-grace", 2*time.Second, "how long to wait for etcd before starting as saved")
	f.DurationVar(&o.Resync, "resync", 30*time.Second, "time between two comparisons of kernel and plan")
	f.StringVar(&o.StateDir, "state-dir", "/var/lib/overlayd", "`folder` for what is kept over restarts")
	f.StringVar(&o.NodeName, "node-name", host, "this node's `name`, for messages to people")
	f.StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.HealthzIP, "healthz-ip", "0.0.0.0", "`address` for /healthz, /readyz and /metrics")
	f.IntVar(&o.HealthzPort, "healthz-port", 0, "`port` for /healthz, /readyz and /metrics; 0 for none")
	f.DurationVar(&o.EtcdUnseen, "etcd-unseen", 5*time.Minute, "/readyz fails when etcd is silent for longer")
	f.Var(verbosity{&o.LogLevel}, "v", "flannel's `verbosity`: from 1 on like --log-level=debug")
	defineKube(f)
	defineLogging(f)
	f.BoolVar(&o.Leave, "leave", false, "give this node's lease back and exit; stop the agent first")
	f.BoolVar(&o.Version, "version", false, "print the version and exit")
	f.BoolVar(&o.ListDefects, "list-defects", false, "print the defects that this build can have and exit")
	var defects []string
	f.Var(list{&defects}, "defect", "historic failure to have; only in a build with -tags defects")
	return &defects
}

// fromEnvironment sets each flag that the command line left out from OVERLAYD_<FLAG> or else
// FLANNELD_<FLAG>. An empty value is ignored, as flannel does: environment files often have some.
func fromEnvironment(f *flag.FlagSet, lookup func(string) (string, bool)) error {
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	var errs []error
	f.VisitAll(func(fl *flag.Flag) {
		if given[fl.Name] {
			return
		}
		name := strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		for _, prefix := range []string{"OVERLAYD_", "FLANNELD_"} {
			if value, ok := lookup(prefix + name); ok && value != "" {
				if err := f.Set(fl.Name, value); err != nil {
					errs = append(errs, fmt.Errorf("%w: %s%s=%q: %w", ErrUsage, prefix, name, value, err))
				}
				return
			}
		}
	})
	return errors.Join(errs...)
}

// validate checks what the flags' types do not, and derives the timers that were left to be derived.
func (o *Options) validate() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrUsage}, args...)...))
	}
	if o.LeaseTTL < time.Second {
		refuse("--lease-ttl %s: etcd's leases live a second at least", o.LeaseTTL)
	}
	if o.RenewMargin < 1 || o.RenewMargin > 1439 {
		refuse("--subnet-lease-renew-margin %d: 1 to 1439 minutes, as flannel's", o.RenewMargin)
	}
	for _, pattern := range o.IfacePatterns {
		if _, err := regexp.Compile(pattern); err != nil {
			refuse("--iface-regex %q: %w", pattern, err)
		}
	}
	if o.IPTablesResync != 0 {
		o.Resync = time.Duration(o.IPTablesResync) * time.Second
	}
	if o.LeaseRenew == 0 {
		o.LeaseRenew = o.LeaseTTL / 3
		margin := time.Duration(o.RenewMargin) * time.Minute
		if latest := o.LeaseTTL - margin; margin > 0 && latest > 0 {
			o.LeaseRenew = min(o.LeaseRenew, latest)
		}
	}
	if o.LeaseRenew >= o.LeaseTTL {
		refuse("--lease-renew %s is not before the end of --lease-ttl %s", o.LeaseRenew, o.LeaseTTL)
	}
	for name, d := range map[string]time.Duration{
		"etcd-timeout": o.EtcdTimeout, "etcd-check": o.EtcdCheck, "resync": o.Resync, "lease-renew": o.LeaseRenew,
	} {
		if d <= 0 {
			refuse("--%s %s: it must be more than nothing", name, d)
		}
	}
	if o.HealthzPort < 0 || o.HealthzPort > 65535 {
		refuse("--healthz-port %d is no port", o.HealthzPort)
	}
	if o.PeerHold < 0 {
		refuse("--peer-hold %s: 0 or more", o.PeerHold)
	}
	if o.EtcdPasswordFile != "" {
		raw, err := os.ReadFile(o.EtcdPasswordFile)
		switch {
		case err != nil:
			refuse("--etcd-password-file: %w", err)
		case o.EtcdPassword != "":
			refuse("--etcd-password and --etcd-password-file: give one of them")
		}
		o.EtcdPassword = strings.TrimRight(string(raw), "\r\n")
	}
	if (o.EtcdCertFile == "") != (o.EtcdKeyFile == "") {
		refuse("--etcd-certfile and --etcd-keyfile go together")
	}
	return errors.Join(errs...)
}
