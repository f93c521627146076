package follow

import (
	"fmt"
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// WritePcapng writes the packet, wherever it was seen, as a pcapng file with one interface a hop, called by
// node and device ("node01:cni0"). Hops of the expected way that it did not reach are there too, without
// packets. Each packet's comment says which direction it is.
func (t Trace) WritePcapng(w io.Writer) error {
	names, at := []string{}, map[string]int{}
	add := func(node, device string) {
		name := node + ":" + device
		if _, known := at[name]; !known {
			at[name] = len(names)
			names = append(names, name)
		}
	}
	for _, h := range t.Hops {
		add(h.Node, h.Device)
	}
	for _, s := range t.Observation.Sightings {
		add(s.Place, s.Device)
	}
	if len(names) == 0 {
		add(t.From, "none")
	}
	options := pcapgo.DefaultNgWriterOptions
	options.SectionInfo.Application = "nemesh"
	options.SectionInfo.Comment = t.Sentence
	out, err := pcapgo.NewNgWriterInterface(w, ngInterface(names[0]), options)
	if err != nil {
		return fmt.Errorf("write the packets: %w", err)
	}
	for _, name := range names[1:] {
		if _, err := out.AddInterface(ngInterface(name)); err != nil {
			return fmt.Errorf("write the packets: %w", err)
		}
	}
	for _, s := range t.Observation.Sightings {
		way := "in"
		if s.Out {
			way = "out"
		}
		err := out.WritePacketWithOptions(gopacket.CaptureInfo{
			Timestamp: s.At, CaptureLength: len(s.Frame), Length: len(s.Frame),
			InterfaceIndex: at[s.Place+":"+s.Device],
		}, s.Frame, pcapgo.NgPacketOptions{Comments: []string{s.Direction + " " + way}})
		if err != nil {
			return fmt.Errorf("write the packets: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the packets: %w", err)
	}
	return nil
}

func ngInterface(name string) pcapgo.NgInterface {
	i := pcapgo.DefaultNgInterface
	i.Name, i.LinkType, i.SnapLength = name, layers.LinkTypeEthernet, snapLength
	return i
}
