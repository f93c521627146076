package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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
	scenario string
}

type shared struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// Open opens a record for appending, and creates it if needed.
func Open(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	return &Writer{file: &shared{file: file}}, nil
}

// For returns a writer whose events belong to a scenario.
func (w *Writer) For(scenario string) *Writer {
	if w == nil {
		return nil
	}
	return &Writer{file: w.file, scenario: scenario}
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
	if e.Scenario == "" {
		e.Scenario = w.scenario
	}
	line, err := json.Marshal(e)
	w.file.mu.Lock()
	defer w.file.mu.Unlock()
	if err == nil {
		_, err = w.file.file.Write(append(line, '\n'))
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

// maxLine bounds a line of a record.
const maxLine = 16 << 20

// Read calls each with the events of a record, in order. A cut-off last line gives ErrCut after the others.
func Read(r io.Reader, each func(Event) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
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
			return fmt.Errorf("line %d is not an event of a record: %w", n, err)
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
