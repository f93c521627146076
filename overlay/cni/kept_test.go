package cni

import (
	"encoding/json"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestGCIsOfOneNetwork(t *testing.T) {
	kept := cache{t.TempDir()}
	for id, raw := range map[string]string{
		"gone":    `{"name":"ours","type":"bridge","ipam":{"type":"host-local"}}`,
		"alive":   `{"name":"ours","type":"bridge","ipam":{"type":"host-local"}}`,
		"theirs":  `{"name":"other","type":"bridge","ipam":{"type":"host-local"}}`,
		"damaged": `{"na`,
	} {
		if err := kept.put(id, []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := parseConf([]byte(`{"name":"ours"}`))
	if err != nil {
		t.Fatal(err)
	}
	c.Attachments = []types.GCAttachment{{ContainerID: "alive", IfName: "eth0"}}
	for id, want := range map[string]bool{"gone": true, "alive": false, "theirs": false, "damaged": true} {
		if got, err := c.mayCollect(kept, id); err != nil || got != want {
			t.Errorf("%s: %t, %v", id, got, err)
		}
	}
}

// A cache that is JSON and no configuration would make DEL fail for ever, or free no address.
func TestDamagedCacheIsMadeUpAgain(t *testing.T) {
	c, err := parseConf([]byte(`{"name":"ours"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{
		"", "null", "{}", "[]", `"x"`, `{"name":"ours"}`, `{"name":"ours","ipam":{}}`, `{"name":"ours","ipam":[]}`,
		"\x00\x00",
	} {
		kept := cache{t.TempDir()}
		if err := kept.put("pod", []byte(raw)); err != nil {
			t.Fatal(err)
		}
		got, err := c.delegateOf(kept, "pod")
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		var d struct {
			Name string
			IPAM struct{ Type string }
		}
		if err := json.Unmarshal(got, &d); err != nil || d.Name != "ours" || d.IPAM.Type != "host-local" {
			t.Errorf("%q: DEL would use %s, %v", raw, got, err)
		}
	}
}
