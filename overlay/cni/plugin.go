// Package cni is the overlay's CNI plugin. It makes the configuration of another plugin, by default the
// bridge plugin, from the subnet that the agent leased, and calls that plugin.
//
// It does more than flannel's plugin. An ADD is undone if the node moves to another subnet meanwhile. A
// bridge with another subnet's gateway is repaired. A DEL that failed can be repeated, and a DEL without a
// cache file still frees the address.
package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/nemesh/nemesh/overlay/defect"
)

// Main runs the plugin: the operation from CNI_COMMAND, the configuration from stdin.
func Main(about string) {
	skel.PluginMainFuncs(
		skel.CNIFuncs{Add: add, Check: check, Del: del, GC: gc, Status: status},
		version.All,
		about,
	)
}

// notReady turns errNotReady into CNI's "try again later". It returns other errors as they are.
func notReady(err error) error {
	if errors.Is(err, errNotReady) {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	}
	return err
}

func add(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	e, err := readEnv(c.SubnetFile)
	if err != nil && c.defects.Has(defect.GuessSubnet) {
		e, err = parseEnv(anySubnet)
	}
	if err != nil {
		return notReady(err)
	}
	ctx, kept := context.TODO(), cache{c.DataDir}
	networks, err := kept.networks(e.Networks)
	if err != nil {
		return err
	}
	if c.bridge() != "" && !c.defects.Has(defect.ForgetSubnet) {
		if err := c.healBridge(e, networks); err != nil {
			return err
		}
	}
	delegate, err := c.delegateConf(e)
	if err != nil {
		return fmt.Errorf("build the delegate's configuration: %w", err)
	}
	if err := kept.put(args.ContainerID, delegate); err != nil {
		return err
	}
	result, err := invoke.DelegateAdd(ctx, c.delegateType(), delegate, nil)
	if err == nil && !c.defects.Has(defect.GuessSubnet) {
		err = stillOurs(c, e)
	}
	if err != nil && c.defects.Has(defect.NoUndo) {
		return err
	}
	if err != nil {
		return notReady(errors.Join(err, undo(ctx, c, kept, args.ContainerID, delegate)))
	}
	return types.PrintResult(result, c.CNIVersion)
}

// stillOurs reads the subnet file again. If the node has lost its subnet meanwhile, a pod of another node
// may get the same address.
func stillOurs(c conf, before subnetEnv) error {
	now, err := readEnv(c.SubnetFile)
	if err != nil {
		return err
	}
	if !now.same(before) {
		return fmt.Errorf("%w: it moved to another subnet while the pod was set up", errNotReady)
	}
	return nil
}

// undo removes what a failed ADD left. If that fails too, the cache file stays, so that DEL can try again.
func undo(ctx context.Context, c conf, kept cache, container string, delegate []byte) error {
	if err := invoke.DelegateDel(ctx, c.delegateType(), delegate, nil); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return kept.remove(container)
}

func del(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	if c.defects.Has(defect.DELNeedsSubnet) {
		if _, err := readEnv(c.SubnetFile); err != nil {
			return err
		}
	}
	kept := cache{c.DataDir}
	delegate, err := c.delegateOf(kept, args.ContainerID)
	if err != nil {
		return err
	}
	if c.defects.Has(defect.CacheBeforeDEL) {
		if raw, err := kept.get(args.ContainerID); err != nil || !json.Valid(raw) {
			return nil
		}
		if err := kept.remove(args.ContainerID); err != nil {
			return err
		}
	}
	if err := invoke.DelegateDel(context.TODO(), delegateType(delegate, c), delegate, nil); err != nil {
		return fmt.Errorf("take down container %s (its configuration is kept, so DEL can be repeated): %w",
			args.ContainerID, err)
	}
	return kept.remove(args.ContainerID)
}

// delegateOf returns the configuration with which a container was set up. Where that is lost or damaged, one
// that serves for DEL is made up: the delegate finds what is the container's by its id, not by the range.
func (c conf) delegateOf(kept cache, container string) ([]byte, error) {
	raw, err := kept.get(container)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of container %s: %w", container, err)
	}
	if _, ok := understand(raw); ok {
		return raw, nil
	}
	e, err := readEnv(c.SubnetFile)
	if err != nil {
		e, _ = parseEnv(anySubnet)
	}
	return c.delegateConf(e)
}

// anySubnet takes the place of an unknown subnet. The addresses are reserved for documentation (RFC 5737).
const anySubnet = "FLANNEL_NETWORK=192.0.2.0/24\nFLANNEL_SUBNET=192.0.2.1/24\n" +
	"FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"

// keptConf is what matters of a kept configuration here.
type keptConf struct {
	Name, Type string
	IPAM       map[string]any
}

// understand reads a kept configuration. Each is written with the name of its network and with IPAM. Without
// them it is damaged, and a DEL with it would free no address.
func understand(raw []byte) (keptConf, bool) {
	var k keptConf
	err := json.Unmarshal(raw, &k)
	return k, err == nil && k.Name != "" && k.IPAM["type"] != nil
}

// delegateType reads the type out of a kept configuration, which may be of another delegate than is used
// now.
func delegateType(delegate []byte, c conf) string {
	if k, ok := understand(delegate); ok && k.Type != "" {
		return k.Type
	}
	return c.delegateType()
}

func check(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	raw, err := cache{c.DataDir}.get(args.ContainerID)
	if err != nil || raw == nil {
		return errors.Join(fmt.Errorf("container %s was not set up by this plugin, or its configuration is lost",
			args.ContainerID), err)
	}
	if _, ok := understand(raw); !ok {
		return fmt.Errorf("the configuration of container %s is damaged", args.ContainerID)
	}
	withResult, err := passPrevResult(raw, args.StdinData)
	if err != nil {
		return err
	}
	return invoke.DelegateCheck(context.TODO(), delegateType(raw, c), withResult, nil)
}

// passPrevResult hands the result of ADD, which the runtime gives to CHECK, on to the delegate.
func passPrevResult(delegate, stdin []byte) ([]byte, error) {
	var d, given map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(delegate, &d), json.Unmarshal(stdin, &given)); err != nil {
		return nil, fmt.Errorf("the container's configuration is damaged: %w", err)
	}
	for _, field := range []string{"prevResult", "cniVersion"} {
		if value, ok := given[field]; ok {
			d[field] = value
		}
	}
	return json.Marshal(d)
}

// gc frees what belongs to containers that are gone, and then has the delegate do the same.
func gc(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	if c.defects.Has(defect.GCNothing) {
		return nil
	}
	kept := cache{c.DataDir}
	ids, err := kept.containers()
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, id := range ids {
		mine, err := c.mayCollect(kept, id)
		if err == nil && mine {
			err = c.collect(kept, id)
		}
		errs = append(errs, err)
	}
	e, err := readEnv(c.SubnetFile)
	if err != nil {
		e, _ = parseEnv(anySubnet)
	}
	delegate, err := c.delegateConf(e)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	withValid, err := passAttachments(delegate, args.StdinData)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, invoke.DelegateGC(context.TODO(), c.delegateType(), withValid, nil))...)
}

// mayCollect reports whether a container is gone from this network. Networks may share the folder, and the
// runtime names the attachments of one.
func (c conf) mayCollect(kept cache, container string) (bool, error) {
	raw, err := kept.get(container)
	if err != nil {
		return false, fmt.Errorf("collect container %s: %w", container, err)
	}
	if k, ok := understand(raw); ok && k.Name != c.Name {
		return false, nil
	}
	alive := func(a types.GCAttachment) bool { return a.ContainerID == container }
	return !slices.ContainsFunc(c.Attachments, alive), nil
}

// collect takes down what a container that is gone has left. The bridge plugin itself collects nothing, so
// it is told to DEL, with the configuration that the container was set up with. The interface's name is not
// known any more; runtimes use eth0.
func (c conf) collect(kept cache, container string) error {
	delegate, err := c.delegateOf(kept, container)
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"CNI_CONTAINERID": container, "CNI_IFNAME": "eth0", "CNI_NETNS": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("collect container %s: %w", container, err)
		}
	}
	if err := invoke.DelegateDel(context.TODO(), delegateType(delegate, c), delegate, nil); err != nil {
		return fmt.Errorf("collect container %s: %w", container, err)
	}
	return kept.remove(container)
}

func passAttachments(delegate, stdin []byte) ([]byte, error) {
	const field = "cni.dev/valid-attachments"
	var d, given map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(delegate, &d), json.Unmarshal(stdin, &given)); err != nil {
		return nil, fmt.Errorf("pass on the valid attachments: %w", err)
	}
	if value, ok := given[field]; ok {
		d[field] = value
	}
	return json.Marshal(d)
}

func status(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	e, err := readEnv(c.SubnetFile)
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "dataDir cannot be used: "+err.Error(), "")
	}
	delegate, err := c.delegateConf(e)
	if err != nil {
		return err
	}
	return invoke.DelegateStatus(context.TODO(), c.delegateType(), delegate, nil)
}
