package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the record's clock.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock is part of every Linux
	}
	return ts.Nano()
}

// At converts a moment of this process to the record's clock.
func At(t time.Time) int64 { return Now() - int64(time.Since(t)) }

// Writer appends to a record. A nil Writer drops everything. Its methods may be called from several
// goroutines.
type Writer struct {
	file     *shared
	scenario *atomic.Pointer[string]
	cluster  string
}

type shared struct {
	mu   sync.Mutex
	file *os.File
	err  error
	torn bool // the last line was written in part, as happens when a disk gets full
}

// append writes a line. The one after a torn line ends that first, so that it stays whole itself.
func (s *shared) append(line []byte) error {
	line = append(line, '\n')
	if s.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := s.file.Write(line)
	if n > 0 {
		s.torn = n < len(line)
	}
	return err
}

// Open opens a record for appending, and creates it if needed.
func Open(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	return &Writer{file: &shared{file: file}, scenario: &atomic.Pointer[string]{}}, nil
}

// For returns a writer whose events belong to a scenario.
func (w *Writer) For(scenario string) *Writer {
	if w == nil {
		return nil
	}
	mine := &Writer{file: w.file, scenario: &atomic.Pointer[string]{}, cluster: w.cluster}
	mine.scenario.Store(&scenario)
	return mine
}

// InCluster returns a writer whose events belong to a cluster with this id and to the same scenario as w's,
// also when that changes.
func (w *Writer) InCluster(id string) *Writer {
	if w == nil {
		return nil
	}
	return &Writer{file: w.file, scenario: w.scenario, cluster: id}
}

// SetScenario says which scenario the events of w, and of all InCluster of it, belong to from now on.
func (w *Writer) SetScenario(name string) {
	if w != nil {
		w.scenario.Store(&name)
	}
}

// Scenario returns the scenario to which events of w belong; "" for none.
func (w *Writer) Scenario() string {
	if w == nil || w.scenario.Load() == nil {
		return ""
	}
	return *w.scenario.Load()
}

// Write appends one event. The clock is read if the event has no time. The first error is kept for Close, so
// that a full disk does not stop a scenario.
func (w *Writer) Write(e Event) {
	if w == nil {
		return
	}
	if e.At == 0 {
		e.At = Now()
	}
	if name := w.scenario.Load(); e.Scenario == "" && name != nil {
		e.Scenario = *name
	}
	if e.Cluster == "" {
		e.Cluster = w.cluster
	}
	line, err := json.Marshal(e)
	w.file.mu.Lock()
	defer w.file.mu.Unlock()
	if err == nil {
		err = w.file.append(line)
	}
	w.file.err = errors.Join(w.file.err, err)
}

// Close closes the record for all writers that share it and returns the first error of writing.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.file.mu.Lock()
	defer w.file.mu.Unlock()
	return errors.Join(w.file.err, w.file.file.Close())
}

// ErrCut says that a record ends in the middle of a line: its writer was killed, or the disk was full.
var ErrCut = errors.New("the record ends in the middle of a line")

// ErrEmpty says that a record has no line yet.
var ErrEmpty = errors.New("the record holds nothing: was the run killed before it began?")

// maxLine bounds a line of a record.
const maxLine = 16 << 20

// Read calls each with the events of a record, in order. A cut-off last line gives ErrCut after the others.
func Read(r io.Reader, each func(Event) error) error {
	return read(r, each, func(_ int, err error) error { return err })
}

// read is Read that asks, of a line that is no event, whether to stop.
func read(r io.Reader, each func(Event) error, damaged func(line int, err error) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for n := 1; ; n++ {
		var err error
		line, err = readLine(lines, line[:0])
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				return fmt.Errorf("%w (line %d)", ErrCut, n)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the record: %w", err)
		}
		if len(line) > maxLine {
			return fmt.Errorf("line %d of the record is longer than %d bytes", n, maxLine)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			err = damaged(n, fmt.Errorf("line %d is not an event of a record: %w", n, err))
			if err != nil {
				return err
			}
			continue
		}
		if e.Run != nil && e.Run.Version != Version {
			return fmt.Errorf(
				"the record has schema version %d and this program reads version %d: use the nemesh that "+
					"wrote it",
				e.Run.Version,
				Version,
			)
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// readLine appends the next line to the buffer, with its end. It stops soon after maxLine.
func readLine(from *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxLine {
			return line, err
		}
	}
}

// ReadFile reads a whole record. With ErrCut the events are those before the cut.
func ReadFile(path string) ([]Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	defer file.Close()
	var events []Event
	err = Read(file, func(e Event) error {
		events = append(events, e)
		return nil
	})
	return events, err
}

// Took returns how long each scenario of a record took, by name. Scenarios that were interrupted or not
// proven are left out. It decodes the verdicts only, so it is fast on a large record.
func Took(path string) (map[string]time.Duration, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	defer file.Close()
	took := map[string]time.Duration{}
	lines := bufio.NewReaderSize(file, 64<<10)
	var line []byte
	for {
		line, err = readLine(lines, line[:0])
		if errors.Is(err, io.EOF) {
			return took, nil
		}
		if err != nil {
			return took, fmt.Errorf("read the record: %w", err)
		}
		if !bytes.Contains(line, []byte(`"kind":"verdict"`)) {
			continue
		}
		var e Event
		if json.Unmarshal(line, &e) != nil || e.Kind != KindVerdict || e.Verdict == nil {
			continue // a damaged line, or a line of output that looks like one
		}
		if v := e.Verdict; !v.Interrupted && v.State != Unproven {
			took[e.Scenario] = v.Took()
		}
	}
}

// Load reads a record and puts the run together. path is the record or the folder that holds it as
// record.jsonl. A record that is cut off or damaged is no error: Outcome.Cut and Damaged say so. One that
// does not begin with what was run is refused.
func Load(path string) (*Outcome, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "record.jsonl")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	defer file.Close()
	o := &Outcome{}
	err = read(file, func(e Event) error {
		if o.Run == nil && e.Run == nil {
			return fmt.Errorf("%s does not begin with what was run: is it the record of a run of nemesh?", path)
		}
		o.Add(e)
		return nil
	}, func(line int, err error) error {
		if o.Run == nil {
			return err
		}
		o.Damaged = append(o.Damaged, line)
		return nil
	})
	switch {
	case errors.Is(err, ErrCut):
		o.Cut = true
	case err != nil:
		return nil, err
	case o.Run == nil:
		return nil, fmt.Errorf("%w (%s)", ErrEmpty, path)
	}
	return o, nil
}
