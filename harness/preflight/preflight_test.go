package preflight

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/ns"
	"github.com/nemesh/nemesh/harness/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

func TestRequiredFeaturesAreTried(t *testing.T) {
	if err := Check(ns.Scratch); err != nil {
		t.Fatal(err)
	}
}

func TestFeatureOfNoKernelIsMissing(t *testing.T) {
	none := Feature{Name: "none", try: link(&netlink.GenericLink{LinkType: "none"})}
	if err := none.Try(ns.Scratch); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatalf("a kind of link that does not exist was made: %v", err)
	}
}

func TestMissingNamesRemedy(t *testing.T) {
	m := &Missing{
		Features: []Feature{{Name: "vxlan", Needed: "the overlay's VXLAN backend", Remedy: "sudo modprobe vxlan"}},
		Causes:   []error{errors.New("operation not supported")},
	}
	for _, want := range []string{"vxlan", "operation not supported", "sudo modprobe vxlan"} {
		if !strings.Contains(m.Error(), want) {
			t.Errorf("%q is not in %q", want, m.Error())
		}
	}
}
