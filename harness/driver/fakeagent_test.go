package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// fakeName begins the name under which this binary is an agent: what follows is how it behaves. It does what
// the contract of a driver asks of an agent and no more, so that the contract is tested without a vendor's
// binary.
const fakeName = "fake-agent-"

// Modes of the fake agent.
const (
	fakeGood      = "good"
	fakeUsage     = "usage"     // prints its usage and exits
	fakeNever     = "never"     // runs and is never ready
	fakeDaemon    = "daemon"    // puts itself into the background
	fakeElsewhere = "elsewhere" // writes its subnet file where nobody looks
)

// fakeMain is the agent, if this process was started as one.
func fakeMain() {
	mode, ok := strings.CutPrefix(filepath.Base(os.Args[0]), fakeName)
	if !ok {
		return
	}
	if err := fakeAgent(mode, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fake agent:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func fakeAgent(mode string, args []string) error {
	f := fake{}
	flags := flag.NewFlagSet("fake-agent", flag.ContinueOnError)
	flags.StringVar(&f.etcd, "etcd", "", "endpoints of etcd")
	flags.StringVar(&f.prefix, "prefix", "", "where the keys are")
	flags.StringVar(&f.iface, "iface", "", "the uplink")
	flags.StringVar(&f.file, "file", "", "the subnet file")
	version := flags.Bool("version", false, "print the version")
	if mode == fakeUsage {
		flags.Usage()
		os.Exit(2)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version {
		fmt.Println("fake-agent v1.2.3")
		return nil
	}
	switch mode {
	case fakeNever:
		fmt.Println("waiting for a licence")
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		<-ctx.Done()
		return nil
	case fakeDaemon:
		behind := exec.Command("/proc/self/exe", args...)
		behind.Args[0] = fakeName + fakeNever
		behind.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		fmt.Println("going into the background")
		return behind.Start()
	case fakeElsewhere:
		f.file = "/run/elsewhere/subnet.env"
	}
	return f.run()
}

// fake is a minimal overlay agent: one lease, one static VXLAN device, an entry for each peer.
type fake struct {
	etcd, prefix, iface, file string

	client *clientv3.Client
	uplink netlink.Link
	self   netip.Addr
	device *netlink.Vxlan
}

type fakeLease struct {
	PublicIP    netip.Addr
	BackendType string
	BackendData struct {
		VNI     int
		VtepMAC string
	}
}

func (f *fake) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	f.client, err = clientv3.New(clientv3.Config{
		Endpoints: strings.Split(f.etcd, ","), Context: ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer f.client.Close()
	if err := f.makeDevice(); err != nil {
		return fmt.Errorf("device: %w", err)
	}
	subnet, revision, err := f.lease(ctx)
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	own := netip.PrefixFrom(subnet.Addr(), 32)
	err = netlink.AddrReplace(f.device, &netlink.Addr{IPNet: ipNet(own)})
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if err := f.writeFile(subnet); err != nil {
		return fmt.Errorf("subnet file: %w", err)
	}
	fmt.Println("subnet", subnet)
	watch := f.client.Watch(ctx, f.prefix+"/subnets/", clientv3.WithPrefix(), clientv3.WithRev(revision))
	for resp := range watch {
		for _, e := range resp.Events {
			if e.Type == clientv3.EventTypePut {
				if err := f.peer(string(e.Kv.Key), e.Kv.Value); err != nil {
					return fmt.Errorf("peer %s: %w", e.Kv.Key, err)
				}
			}
		}
	}
	return nil
}

// makeDevice makes flannel.1, or takes over the one that is there.
func (f *fake) makeDevice() error {
	var err error
	if f.uplink, err = netlink.LinkByName(f.iface); err != nil {
		return err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	addrs, err := handle.AddrList(f.uplink, netlink.FAMILY_V4)
	if err != nil || len(addrs) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no address", f.iface))
	}
	f.self, _ = netip.AddrFromSlice(addrs[0].IP.To4())
	wanted := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "flannel.1", MTU: f.uplink.Attrs().MTU - 50}, VxlanId: 1, Port: 8472,
		VtepDevIndex: f.uplink.Attrs().Index, SrcAddr: f.self.AsSlice(),
	}
	if err := netlink.LinkAdd(wanted); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	there, err := netlink.LinkByName(wanted.Name)
	if err != nil {
		return err
	}
	f.device, _ = there.(*netlink.Vxlan)
	return netlink.LinkSetUp(there)
}

// lease takes the first free subnet, or the one that this node has, and returns the revision from which to
// watch.
func (f *fake) lease(ctx context.Context) (netip.Prefix, int64, error) {
	var config struct {
		Network   netip.Prefix
		SubnetLen int
	}
	resp, err := f.client.Get(ctx, f.prefix+"/config")
	if err == nil && len(resp.Kvs) == 1 {
		err = json.Unmarshal(resp.Kvs[0].Value, &config)
	}
	if err != nil {
		return netip.Prefix{}, 0, err
	}
	value := fakeLease{PublicIP: f.self, BackendType: "vxlan"}
	value.BackendData.VNI, value.BackendData.VtepMAC = 1, f.device.HardwareAddr.String()
	raw, err := json.Marshal(value)
	if err != nil {
		return netip.Prefix{}, 0, err
	}
	grant, err := f.client.Grant(ctx, 3600)
	if err != nil {
		return netip.Prefix{}, 0, err
	}
	octets := config.Network.Addr().As4()
	for i := byte(1); i < 255; i++ {
		octets[2] = i
		subnet := netip.PrefixFrom(netip.AddrFrom4(octets), config.SubnetLen)
		key := f.prefix + "/subnets/" + strings.ReplaceAll(subnet.String(), "/", "-")
		done, err := f.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), "=", 0)).
			Then(clientv3.OpPut(key, string(raw), clientv3.WithLease(grant.ID))).
			Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return netip.Prefix{}, 0, err
		}
		if done.Succeeded {
			return subnet, 1, nil
		}
		var held fakeLease
		kv := done.Responses[0].GetResponseRange().Kvs[0]
		if json.Unmarshal(kv.Value, &held) == nil && held.PublicIP == f.self {
			return subnet, 1, nil
		}
	}
	return netip.Prefix{}, 0, errors.New("no free subnet")
}

func (f *fake) writeFile(subnet netip.Prefix) error {
	text := fmt.Sprintf(
		"FLANNEL_NETWORK=172.16.0.0/16\nFLANNEL_SUBNET=%s/%d\nFLANNEL_MTU=%d\nFLANNEL_IPMASQ=true\n",
		subnet.Addr().Next(),
		subnet.Bits(),
		f.device.MTU,
	)
	if err := os.MkdirAll(filepath.Dir(f.file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(f.file, []byte(text), 0o644)
}

// peer programs what reaches another node's subnet: neighbour, forwarding entry, route, as flannel does.
func (f *fake) peer(key string, raw []byte) error {
	subnet, err := netip.ParsePrefix(strings.Replace(filepath.Base(key), "-", "/", 1))
	if err != nil {
		return err
	}
	var lease fakeLease
	if err := json.Unmarshal(raw, &lease); err != nil || lease.PublicIP == f.self {
		return err
	}
	mac, err := net.ParseMAC(lease.BackendData.VtepMAC)
	if err != nil {
		return err
	}
	index := f.device.Index
	return errors.Join(
		netlink.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST,
			IP: subnet.Addr().AsSlice(), HardwareAddr: mac,
		}),
		netlink.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, Family: unix.AF_BRIDGE,
			Flags: netlink.NTF_SELF, IP: lease.PublicIP.AsSlice(), HardwareAddr: mac,
		}),
		netlink.RouteReplace(&netlink.Route{
			LinkIndex: index, Dst: ipNet(subnet), Gw: subnet.Addr().AsSlice(),
			Flags: int(netlink.FLAG_ONLINK),
		}),
	)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
