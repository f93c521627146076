package follow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropWatch listens to the kernel freeing packets (tracepoint skb:kfree_skb), which only root may. Perf
// events are used and not the trace's own files: they end with their descriptors, so nothing is left
// switched on when we are killed.
//
// The tracepoint names a buffer, not a packet, and that of the whole machine. So a second one,
// net:netif_receive_skb, tells which buffers hold a packet of the echo's length, and only what is freed
// within a moment of that is taken for ours.
type dropWatch struct {
	events []perfEvent
	drop   tracepoint
	recv   tracepoint
	// base is when the monotonic clock, by which events are stamped, was zero.
	base time.Time
}

// tracepoint is what the format file of a tracepoint says.
type tracepoint struct {
	id     uint64
	fields map[string]field
	// names are the words for the values of the field "reason".
	names map[uint32]string
}

type field struct{ offset, size int }

// perfEvent is one tracepoint on one CPU.
type perfEvent struct {
	fd   int
	ring []byte
	drop bool
}

// ringPages is the size of a ring without its first page; a power of two (perf_event_open(2)).
const ringPages = 8

// watchDrops starts to listen for packets with one of the lengths. The error says why the kernel does not
// tell; the watch is nil then.
func watchDrops(lengths ...int) (*dropWatch, error) {
	drop, recv, err := readTracepoints()
	if err != nil {
		return nil, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	w := &dropWatch{drop: drop, recv: recv, base: time.Now().Add(-time.Duration(now.Nano()))}
	var fits []string
	for _, l := range lengths {
		fits = append(fits, fmt.Sprintf("len == %d", l))
	}
	for cpu := range runtime.NumCPU() {
		for _, e := range []struct {
			tracepoint
			filter string
			drop   bool
		}{{drop, "protocol == 2048 && reason > 2", true}, {recv, strings.Join(fits, " || "), false}} {
			event, err := openEvent(e.id, cpu, e.filter)
			if err != nil {
				w.release()
				return nil, err
			}
			event.drop = e.drop
			w.events = append(w.events, event)
		}
	}
	return w, nil
}

// readTracepoints reads the formats from a tracefs that is mounted for as long as that takes, in the mount
// namespace of this program.
func readTracepoints() (drop, recv tracepoint, err error) {
	dir, err := os.MkdirTemp("", "tracefs-")
	if err != nil {
		return drop, recv, fmt.Errorf("make a folder for tracefs: %w", err)
	}
	defer os.Remove(dir)
	if err := unix.Mount(
		"tracefs",
		dir,
		"tracefs",
		unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"",
	); err != nil {
		return drop, recv, fmt.Errorf("mount tracefs, which only root may: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	for name, to := range map[string]*tracepoint{"skb/kfree_skb": &drop, "net/netif_receive_skb": &recv} {
		raw, err := os.ReadFile(filepath.Join(dir, "events", name, "format"))
		if err != nil {
			return drop, recv, fmt.Errorf("read the format of tracepoint %s: %w", name, err)
		}
		if *to, err = parseFormat(string(raw)); err != nil {
			return drop, recv, fmt.Errorf("read the format of tracepoint %s: %w", name, err)
		}
	}
	if len(drop.names) == 0 {
		return drop, recv, errors.New("this kernel gives no reasons; they came with Linux 5.17")
	}
	return drop, recv, nil
}

var (
	formatID     = regexp.MustCompile(`(?m)^ID: (\d+)$`)
	formatField  = regexp.MustCompile(`(?m)^\tfield:.*?(\w+)(?:\[\d*\])?;\toffset:(\d+);\tsize:(\d+);`)
	formatReason = regexp.MustCompile(`\{ (\d+), "(\w+)" \}`)
)

// parseFormat reads a tracepoint's format file (Documentation/trace/events.rst).
func parseFormat(text string) (tracepoint, error) {
	id := formatID.FindStringSubmatch(text)
	if id == nil {
		return tracepoint{}, errors.New("it has no ID")
	}
	t := tracepoint{fields: map[string]field{}, names: map[uint32]string{}}
	t.id, _ = strconv.ParseUint(id[1], 10, 64)
	for _, m := range formatField.FindAllStringSubmatch(text, -1) {
		offset, _ := strconv.Atoi(m[2])
		size, _ := strconv.Atoi(m[3])
		t.fields[m[1]] = field{offset, size}
	}
	if _, ok := t.fields["skbaddr"]; !ok {
		return tracepoint{}, errors.New("it has no field skbaddr")
	}
	for _, m := range formatReason.FindAllStringSubmatch(text, -1) {
		value, _ := strconv.ParseUint(m[1], 10, 32)
		t.names[uint32(value)] = m[2]
	}
	return t, nil
}

// openEvent opens a tracepoint on a CPU, for all processes.
func openEvent(id uint64, cpu int, filter string) (perfEvent, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Sample: 1,
		Sample_type: unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_RAW,
		Bits:        unix.PerfBitDisabled | unix.PerfBitUseClockID, Clockid: unix.CLOCK_MONOTONIC,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return perfEvent{}, fmt.Errorf("open a perf event, which only root may: %w", err)
	}
	e := perfEvent{fd: fd}
	text, err := unix.BytePtrFromString(filter)
	if err == nil {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER,
			uintptr(unsafe.Pointer(text)))
		if errno != 0 {
			err = errno
		}
	}
	if err == nil {
		e.ring, err = unix.Mmap(fd, 0, (1+ringPages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
	if err != nil {
		e.release()
		return perfEvent{}, fmt.Errorf("set up a perf event: %w", err)
	}
	return e, nil
}

func (e perfEvent) release() {
	if e.ring != nil {
		_ = unix.Munmap(e.ring)
	}
	_ = unix.Close(e.fd)
}

func (w *dropWatch) release() {
	for _, e := range w.events {
		e.release()
	}
}

// sample is an event of either tracepoint.
type sample struct {
	at   uint64 // nanoseconds of the monotonic clock
	drop bool
	raw  []byte
}

// records returns the samples in a ring (struct perf_event_mmap_page, linux/perf_event.h).
func (e perfEvent) records() []sample {
	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&e.ring[0]))
	data := e.ring[os.Getpagesize():]
	head, tail := atomic.LoadUint64(&page.Data_head), page.Data_tail
	at := func(i uint64, n int) []byte {
		b := make([]byte, n)
		for k := range b {
			b[k] = data[(i+uint64(k))%uint64(len(data))]
		}
		return b
	}
	const headerSize = 8
	var samples []sample
	for tail < head {
		header := at(tail, headerSize)
		kind, size := binary.NativeEndian.Uint32(header), binary.NativeEndian.Uint16(header[6:])
		if size < headerSize {
			break
		}
		// A sample is its header, the time, the length of the raw data, and that.
		if body := at(tail+headerSize, int(size)-headerSize); kind == unix.PERF_RECORD_SAMPLE && len(body) > 12 {
			samples = append(samples, sample{at: binary.NativeEndian.Uint64(body), drop: e.drop, raw: body[12:]})
		}
		tail += uint64(size)
	}
	return samples
}

// soon is how long after a buffer was seen with our packet its end is still ours.
const soon = 2 * time.Millisecond

// close ends the watch and returns what befell packets of the lengths.
func (w *dropWatch) close() []Drop {
	if w == nil {
		return nil
	}
	defer w.release()
	var samples []sample
	for _, e := range w.events {
		samples = append(samples, e.records()...)
	}
	slices.SortFunc(samples, func(a, b sample) int { return int(int64(a.at - b.at)) })
	held := map[uint64]uint64{} // when a buffer was seen with a packet of ours
	var drops []Drop
	for _, s := range samples {
		t := w.recv
		if s.drop {
			t = w.drop
		}
		buffer := t.value(s.raw, "skbaddr")
		seen, ours := held[buffer]
		switch {
		case !s.drop:
			held[buffer] = s.at
		case ours && s.at-seen < uint64(soon):
			reason := uint32(t.value(s.raw, "reason"))
			name := t.names[reason]
			if name == "" {
				name = fmt.Sprintf("reason %d", reason)
			}
			drops = append(drops, Drop{At: w.base.Add(time.Duration(s.at)), Reason: name})
			delete(held, buffer)
		}
	}
	return drops
}

// value reads a field of a sample; 0 when it is not there.
func (t tracepoint) value(raw []byte, name string) uint64 {
	f, ok := t.fields[name]
	if !ok || f.offset+f.size > len(raw) {
		return 0
	}
	switch f.size {
	case 8:
		return binary.NativeEndian.Uint64(raw[f.offset:])
	case 4:
		return uint64(binary.NativeEndian.Uint32(raw[f.offset:]))
	case 2:
		return uint64(binary.NativeEndian.Uint16(raw[f.offset:]))
	}
	return 0
}
