package fault

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/flannelkeys"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/harness/pod"
	"github.com/nemesh/nemesh/harness/sandbox"
	"github.com/nemesh/nemesh/harness/underlay"
)

// idler is an agent that does nothing until SIGTERM.
const idler = "nemesh-fault-test-agent"

func init() {
	sandbox.RegisterPart(idler, func() int {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		fmt.Println("ready") // only now is SIGTERM survived with exit code 0
		<-signals
		return 0
	})
}

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

// world is two real machines, a switch and a real etcd. Its agents idle; what an agent would have written
// into etcd, the world writes when it starts one.
type world struct {
	HealStack
	store    *etcd.Member
	fabric   *underlay.Switch
	machines map[string]*node.Machine
	agents   map[string]*node.Process
}

func newWorld(t *testing.T) *world {
	t.Helper()
	fabric, err := underlay.NewSwitch(netip.MustParsePrefix("192.168.200.1/24"))
	must(t, err)
	w := &world{fabric: fabric, machines: map[string]*node.Machine{}, agents: map[string]*node.Process{}}
	t.Cleanup(func() { must(t, fabric.Close()) })
	for name, addr := range map[string]string{"etcd": "10", "node01": "201", "node02": "202"} {
		m, err := node.New(t.Context(), node.Options{
			Name: name, Dir: filepath.Join(sandbox.Dir, t.Name(), name), Switch: fabric,
			Addr: netip.MustParsePrefix("192.168.200." + addr + "/24"),
		})
		must(t, err)
		t.Cleanup(func() { must(t, m.Close()) })
		w.machines[name] = m
	}
	w.store = etcd.New(etcd.Options{Machine: w.machines["etcd"]})
	must(t, w.store.Start(t.Context()))
	w.put(t, flannelkeys.Config, "{}")
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) Etcd() *etcd.Member       { return w.store }
func (w *world) EtcdPrefix() string       { return "/coreos.com/network" }
func (w *world) Switch() *underlay.Switch { return w.fabric }
func (w *world) Device() string           { return "flannel.1" }
func (w *world) SubnetFile() string       { return "/run/flannel/subnet.env" }
func (w *world) Nodes() []string          { return []string{"node01", "node02"} }

func (w *world) StateDir() string         { return "/var/lib/agent" }
func (w *world) PodsOn(string) []*pod.Pod { return nil }
func (w *world) ForgetPod(*pod.Pod)       {}

func (w *world) AddPod(context.Context, string, string) (*pod.Pod, error) {
	return nil, errors.New("this world has no pods")
}

func (w *world) DelPod(context.Context, *pod.Pod) error { return errors.New("this world has no pods") }

func (w *world) PowerOff(ctx context.Context, name string) error {
	m, err := w.Machine(name)
	if err != nil {
		return err
	}
	return m.PowerOff(ctx)
}

// inject injects a fault.
func (w *world) inject(t *testing.T, f Fault) error {
	t.Helper()
	return f.Inject(t.Context(), w.Begin(w, f))
}

func (w *world) Machine(name string) (*node.Machine, error) {
	if m, ok := w.machines[name]; ok && name != "etcd" {
		return m, nil
	}
	return nil, fmt.Errorf("there is no node %q", name)
}

func (w *world) Agent(name string) (*node.Process, error) {
	if p := w.agents[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no agent has been started on %s", name)
}

func (w *world) StartAgent(ctx context.Context, name string) error {
	return w.StartAgentAs(ctx, name, func(c node.Command) node.Command { return c })
}

func (w *world) StartAgentAs(
	ctx context.Context,
	name string,
	change func(node.Command) node.Command,
) error {
	if p := w.agents[name]; p != nil && p.Running() {
		return nil
	}
	m, err := w.Machine(name)
	if err != nil {
		return err
	}
	self := sandbox.PartCommand(idler)
	p, err := m.Start(ctx, change(node.Command{Name: "agent", Path: self.Path, Argv0: idler}))
	if err != nil {
		return err
	}
	w.agents[name] = p
	if err := prove(ctx, proofWithin, "the agent is ready", func(context.Context) (bool, error) {
		return len(p.Tail(1)) == 1, nil
	}); err != nil {
		return err
	}
	env, err := os.ReadFile(m.Path(w.SubnetFile()))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	subnet, err := flannelkeys.ParseEnv(env)
	if err != nil {
		return err
	}
	return w.register(ctx, name, subnet.Key(), 60)
}

// register writes a node's lease as its agent would.
func (w *world) register(ctx context.Context, name, key string, ttl int64) error {
	return withEtcd(ctx, w, func(c *clientv3.Client) error {
		lease, err := c.Grant(ctx, ttl)
		if err != nil {
			return err
		}
		value := flannelkeys.Lease{PublicIP: w.machines[name].Addr()}.JSON()
		_, err = c.Put(ctx, w.EtcdPrefix()+flannelkeys.Subnets+key, value, clientv3.WithLease(lease.ID))
		return err
	})
}

func (w *world) put(t *testing.T, key, value string) {
	t.Helper()
	must(t, withEtcd(t.Context(), w, func(c *clientv3.Client) error {
		_, err := c.Put(t.Context(), w.EtcdPrefix()+key, value)
		return err
	}))
}

// keys lists what etcd holds under the overlay's prefix.
func (w *world) keys(t *testing.T) (keys []string) {
	t.Helper()
	must(t, withEtcd(t.Context(), w, func(c *clientv3.Client) error {
		resp, err := c.Get(t.Context(), w.EtcdPrefix(), clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			keys = append(keys, strings.TrimPrefix(string(kv.Key), w.EtcdPrefix()))
		}
		return nil
	}))
	return keys
}

func (w *world) writeSubnet(t *testing.T, name, subnet string) {
	t.Helper()
	file := w.machines[name].Path(w.SubnetFile())
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte("FLANNEL_SUBNET="+subnet+"\n"), 0o644))
}

// addDevice gives a node the overlay's device.
func (w *world) addDevice(t *testing.T, name string) netlink.Link {
	t.Helper()
	h := w.machines[name].Netlink()
	must(t, h.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: w.Device()}, VxlanId: 1, Port: 8472}))
	link, err := h.LinkByName(w.Device())
	must(t, err)
	must(t, h.LinkSetUp(link))
	return link
}
