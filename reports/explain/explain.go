// Package explain reads what a reporter pastes and says where each packet ended.
//
// It takes iptables TRACE lines from kernel logs, `nft monitor trace`, tcpdump's text, pcap and pcapng, of
// several machines and in any order, and beside them the listings of `ip neigh`, `ip route` and `bridge
// fdb`. Each format has a reader; all of them fill one model, the Sighting; one follower joins sightings to
// packets, packets to exchanges and exchanges to flows. Try it:
//
//	nemesh explain fixtures/traces/flannel-636-pod-to-pod-*.log
//
// Input is read once and never kept: a flow holds at most a fixed number of exchanges (see sampled),
// whatever the number of its lines.
package explain

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrNotTrace says that an input holds no line and no packet of any format that is read here.
var ErrNotTrace = errors.New("nothing in it is an iptables TRACE line, nft monitor trace, tcpdump output, " +
	"a pcap, or a listing of ip neigh, ip route or bridge fdb")

// ErrNoPacket says that the inputs hold listings, but no packet.
var ErrNoPacket = errors.New("there are listings, but no packet to follow: " +
	"add a kernel log with TRACE lines, nft monitor trace, or tcpdump output")

// maxLine is how long a line may be, in bytes. The longest TRACE lines have some 600; what is longer is
// skipped.
const maxLine = 64 << 10

// Explainer collects traces, then answers.
type Explainer struct {
	follow *follower
}

// New makes an Explainer that has read nothing yet.
func New() *Explainer { return &Explainer{follow: newFollower()} }

// Read takes in one input to its end: text of any of the formats, mixed as a terminal shows them, pcap or
// pcapng, each also compressed with gzip. The name stands in error messages, and names the machine where
// the input does not. The error wraps ErrNotTrace when nothing in the input was understood, and says so for
// people.
func (e *Explainer) Read(name string, r io.Reader) error {
	return e.read(name, HostOf(name), true, r)
}

// ReadFrom is Read for an input whose machine is known, whatever it says itself.
func (e *Explainer) ReadFrom(host, name string, r io.Reader) error {
	return e.read(name, host, false, r)
}

func (e *Explainer) read(name, host string, guessed bool, r io.Reader) error {
	br := bufio.NewReaderSize(r, maxLine)
	head, err := br.Peek(4)
	if len(head) == 0 {
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		return fmt.Errorf("%s is empty: %w", name, ErrNotTrace)
	}
	if len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b {
		unpacked, err := gzip.NewReader(br)
		if err != nil {
			return fmt.Errorf("%s looks like gzip, but cannot be unpacked: %w", name, err)
		}
		br = bufio.NewReaderSize(unpacked, maxLine)
		head, _ = br.Peek(4)
	}
	where := origin{host: e.follow.host(host, guessed), guessed: guessed}
	if isCapture(head) {
		return e.readCapture(name, where, br)
	}
	return e.readText(name, where, br)
}

// readText reads lines until the end.
func (e *Explainer) readText(name string, where origin, br *bufio.Reader) error {
	text := textReader{follow: e.follow, file: where, here: where, dump: dumpReader{device: deviceOf(name)}}
	opening, _ := br.Peek(512)
	binaryFile := bytes.IndexByte(opening, 0) >= 0
	var lines, long, understood int
	for {
		raw, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long++
			err = skipLine(br)
			raw = nil
		}
		if len(raw) > 0 {
			lines++
			if text.line(string(bytes.TrimRight(raw, "\r\n"))) {
				understood++
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	text.flush()
	switch {
	case understood > 0:
		e.follow.longLines += long
		return nil
	case binaryFile:
		return fmt.Errorf("%s is neither text nor a pcap: %w", name, ErrNotTrace)
	case long > 0:
		return fmt.Errorf("%s holds no trace (%d lines, %d of them longer than %d bytes and skipped): %w",
			name, lines+long, long, maxLine, ErrNotTrace)
	default:
		return fmt.Errorf("%s holds no trace (%d lines read): %w", name, lines, ErrNotTrace)
	}
}

// skipLine reads on to the end of a line that does not fit.
func skipLine(br *bufio.Reader) error {
	for {
		_, err := br.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// isCapture knows pcap (both byte orders, micro- and nanoseconds) and pcapng by their first four bytes.
func isCapture(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	switch binary.BigEndian.Uint32(head) {
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1, magicNg:
		return true
	}
	return false
}

// magicNg opens a pcapng file: the type of the section header block.
const magicNg = 0x0a0d0d0a
