package underlay

import (
	"container/heap"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// vnetHeader is the length of struct virtio_net_hdr, which stands before each frame.
const vnetHeader = 10

// pass decides what happens to one frame, and queues the frame unless it is dropped.
func (r *relay) pass(frame []byte, q *queue) {
	var delay time.Duration
	copies := 1
	for _, i := range *r.impairs.Load() {
		if i.TCPPort != 0 && !ofTCPPort(frame[vnetHeader:], i.TCPPort) {
			continue
		}
		if i.Duplicate > 0 && rand.Float64() < i.Duplicate {
			copies++
			r.counters.duplicated.Add(1)
		}
		if i.Corrupt > 0 && rand.Float64() < i.Corrupt {
			r.counters.corrupted.Add(1)
			if !corrupt(frame) {
				return
			}
		}
		if i.Reorder > 0 && rand.Float64() < i.Reorder {
			if q.waiting() > 0 {
				r.counters.reordered.Add(1)
			}
			continue
		}
		delay += i.Delay
		if i.Jitter > 0 {
			delay += time.Duration((2*rand.Float64() - 1) * float64(i.Jitter))
		}
	}
	if delay > 0 {
		r.counters.delayed.Add(1)
	}
	for range copies {
		q.push(frame, time.Now().Add(max(0, delay)))
	}
}

// corrupt flips one bit of a frame behind its Ethernet header. It first fills in a checksum that was left to
// the card, which would otherwise be computed over the flipped bit. It reports false for a frame that stands
// for several (segmentation offload): their checksums are always computed later, so the frame is dropped
// instead, as the receivers would do.
func corrupt(frame []byte) bool {
	const needsChecksum, gsoNone, ethernet = 1, 0, 14
	header, data := frame[:vnetHeader], frame[vnetHeader:]
	if header[1] != gsoNone {
		return false
	}
	if header[0]&needsChecksum != 0 {
		start := int(binary.NativeEndian.Uint16(header[6:]))
		at := start + int(binary.NativeEndian.Uint16(header[8:]))
		if start < len(data) && at+2 <= len(data) {
			binary.BigEndian.PutUint16(data[at:], checksum(data[start:]))
		}
		clear(header)
	}
	if len(data) > ethernet {
		data[ethernet+rand.IntN(len(data)-ethernet)] ^= 1 << rand.IntN(8)
	}
	return true
}

// checksum is the Internet checksum (RFC 1071) of data whose checksum field holds the sum of the pseudo
// header.
func checksum(data []byte) uint16 {
	var total uint32
	for len(data) > 1 {
		total += uint32(binary.BigEndian.Uint16(data))
		data = data[2:]
	}
	if len(data) == 1 {
		total += uint32(data[0]) << 8
	}
	for total>>16 != 0 {
		total = total&0xffff + total>>16
	}
	return ^uint16(total)
}

// ofTCPPort reports whether a frame carries a TCP segment over IPv4 from or to a port.
func ofTCPPort(frame []byte, port uint16) bool {
	const ethernet, shortest = 14, 14 + 20 + 4
	if len(frame) < shortest || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP ||
		frame[ethernet+9] != unix.IPPROTO_TCP {
		return false
	}
	tcp := ethernet + 4*int(frame[ethernet]&0x0f)
	return len(frame) >= tcp+4 && (binary.BigEndian.Uint16(frame[tcp:]) == port ||
		binary.BigEndian.Uint16(frame[tcp+2:]) == port)
}

// maxWaiting bounds a queue, in frames, as netem's limit does.
const maxWaiting = 10_000

// queue holds frames of one direction until they are due. Frames that are due at the same time keep their
// order.
type queue struct {
	mu     sync.Mutex
	frames dueFrames
	next   uint64
	closed bool
	wake   chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.frames)
}

func (q *queue) push(frame []byte, due time.Time) {
	q.mu.Lock()
	if len(q.frames) < maxWaiting {
		q.next++
		heap.Push(&q.frames, dueFrame{due, q.next, frame})
	}
	q.mu.Unlock()
	q.ring()
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.ring()
}

func (q *queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns the frame that is due, or else how long to wait for the next.
func (q *queue) take() (frame []byte, wait time.Duration, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, 0, true
	}
	if len(q.frames) == 0 {
		return nil, time.Hour, false
	}
	if wait = time.Until(q.frames[0].due); wait > 0 {
		return nil, wait, false
	}
	return heap.Pop(&q.frames).(dueFrame).data, 0, false
}

// write sends frames to the other side when they are due. A frame that the link does not accept is lost.
func (q *queue) write(to *os.File) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		frame, wait, closed := q.take()
		switch {
		case closed:
			return
		case frame != nil:
			_, _ = to.Write(frame)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.wake:
		}
	}
}

type dueFrame struct {
	due  time.Time
	seq  uint64
	data []byte
}

// dueFrames is a heap (container/heap).
type dueFrames []dueFrame

func (d dueFrames) Len() int { return len(d) }
func (d dueFrames) Less(i, j int) bool {
	return d[i].due.Before(d[j].due) || d[i].due.Equal(d[j].due) && d[i].seq < d[j].seq
}
func (d dueFrames) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *dueFrames) Push(x any)   { *d = append(*d, x.(dueFrame)) }
func (d *dueFrames) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}
