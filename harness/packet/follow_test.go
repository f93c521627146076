package packet_test

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/nemesh/nemesh/harness/packet"
)

func TestDelivered(t *testing.T) {
	w := newWorld(t)
	trace, err := packet.Follow(t.Context(), w.path(1, 2))
	w.must(err)
	if trace.Cause != packet.Delivered || trace.Sentence != "pod1 got its reply from pod2" {
		t.Errorf("%s: %s", trace.Cause, trace.Sentence)
	}
	for _, h := range trace.Hops {
		if !h.Seen {
			t.Errorf("not seen: %+v", h)
		}
	}
	if len(trace.Hops) != 24 {
		t.Errorf("%d hops", len(trace.Hops))
	}
	for _, n := range trace.Notes {
		t.Log(n)
	}
	var file bytes.Buffer
	w.must(trace.WritePcapng(&file))
	r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
	w.must(err)
	_, _, err = r.ReadPacketData()
	w.must(err)
}
