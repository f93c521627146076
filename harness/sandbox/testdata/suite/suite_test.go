// Package suite is a small Ginkgo suite that runs in the sandbox, in several processes.
package suite

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nemesh/nemesh/harness/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

func TestSuite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "suite")
}

var _ = Describe("a spec", func() {
	for range 6 {
		It("is inside", func() { Expect(sandbox.Inside()).To(BeTrue()) })
	}
})
