package main

import (
	"slices"
	"testing"

	"github.com/nemesh/nemesh/harness/etcd"
	"github.com/nemesh/nemesh/harness/fault"
	"github.com/nemesh/nemesh/harness/node"
	"github.com/nemesh/nemesh/reports/text"
)

// paper is a world in which faults are made and not injected.
type paper struct{ fault.World }

func (paper) Machine(string) (*node.Machine, error) { return nil, nil }

func (paper) Nodes() []string    { return []string{"node01", "node02", "node03", "node04"} }
func (paper) SubnetFile() string { return "/run/flannel/subnet.env" }
func (paper) StateDir() string   { return "/var/lib/nemesh" }
func (paper) EtcdPrefix() string { return "/coreos.com/network" }

func (paper) Etcd() *etcd.Member { return etcd.New(etcd.Options{Machine: &node.Machine{}}) }

// TestEveryFaultHasAPromise compares the catalogue of faults with the table of promises, by id and by
// name, so that the behaviour table knows each fault of a record.
func TestEveryFaultHasAPromise(t *testing.T) {
	var ids []string
	for _, e := range fault.Catalogue() {
		ids = append(ids, e.ID)
		args := map[string]string{}
		if e.ID == "uplink-readdressed" {
			args["address"] = "192.168.200.77/24"
		}
		f, err := e.New(paper{}, "node02", args)
		if err != nil {
			t.Errorf("%s: %v", e.ID, err)
			continue
		}
		if got := text.FaultID(f.Name()); got != e.ID {
			t.Errorf("%s is called %q, which is taken for %q", e.ID, f.Name(), got)
		}
	}
	for _, id := range text.Faults() {
		if !slices.Contains(ids, id) {
			t.Errorf("there is a promise for %s, which is no fault", id)
		}
	}
}
