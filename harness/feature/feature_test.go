package feature

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nemesh/nemesh/harness/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

func TestRequiredFeaturesAreTried(t *testing.T) {
	if err := Check(); err != nil {
		t.Fatal(err)
	}
}

func TestFeatureOfNoKernelIsMissing(t *testing.T) {
	none := Feature{Name: "none", try: device("/dev/net/none")}
	if err := none.Try(); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a device that does not exist was found: %v", err)
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
