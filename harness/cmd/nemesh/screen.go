package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

const (
	// progressEvery is how often progress is written where there is no terminal.
	progressEvery = time.Minute
	// logColumns is how wide such a line gets.
	logColumns = 160
	// clearLine moves the cursor to the beginning of its line and clears the line (ECMA-48, CR and EL).
	clearLine = "\r\x1b[K"
)

// screen is what a run is shown on. On a terminal its last line is the progress of the run, which is
// redrawn in place.
type screen struct {
	out   io.Writer
	style text.Style
	// columns returns the width of the terminal; nil if there is none.
	columns func() int
	// drawn is the line of progress on the terminal; "" if it is cleared.
	drawn string
	// written is when progress was written last where there is no terminal.
	written time.Time
}

// newScreen shows a run that began at a moment on a file. Progress is redrawn in place if the file is a
// terminal that can move its cursor. Colours are used on a terminal, unless NO_COLOR is set (no-color.org).
func newScreen(f *os.File, began time.Time) *screen {
	s := &screen{out: f, written: began}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil || os.Getenv("TERM") == "dumb" {
		return s
	}
	_, plain := os.LookupEnv("NO_COLOR")
	s.style.Color = !plain
	s.columns = func() int {
		const usual = 80 // of a terminal that does not know
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err != nil || size.Col == 0 {
			return usual
		}
		return int(size.Col)
	}
	return s
}

// print writes a text that ends in a line break.
func (s *screen) print(t string) {
	s.clear()
	fmt.Fprint(s.out, t)
}

// clear removes the line of progress from the terminal.
func (s *screen) clear() {
	if s.drawn != "" {
		fmt.Fprint(s.out, clearLine)
		s.drawn = ""
	}
}

// progress shows how far the run is at a moment: on a terminal when that has changed, and elsewhere once in
// progressEvery. Of a world that is kept, only a terminal is reminded.
func (s *screen) progress(p text.Progress, now time.Time) {
	if s.columns == nil {
		if now.Sub(s.written) >= progressEvery && len(p.Kept) == 0 {
			s.written = now
			if line := s.style.Progress(p, logColumns); line != "" {
				fmt.Fprintln(s.out, line)
			}
		}
		return
	}
	// The last column stays free: a terminal may go on to the next line when it is written to.
	line := s.style.Progress(p, max(1, s.columns()-1))
	if line != s.drawn {
		s.clear()
		fmt.Fprint(s.out, line)
		s.drawn = line
	}
}

// maxEarlier is how many earlier runs are read for the time that scenarios take.
const maxEarlier = 3

// earlierRuns reads how long scenarios took in the newest runs of a folder, without the run in the folder
// own. It sends the result once: reading takes a moment that the run need not wait for.
func earlierRuns(runs, own string) <-chan text.Earlier {
	result := make(chan text.Earlier, 1)
	go func() {
		var all text.Earlier
		records, _ := filepath.Glob(filepath.Join(runs, "*", "record.jsonl"))
		slices.Sort(records) // their folders are named by the time of day
		for _, r := range slices.Backward(records) {
			if filepath.Dir(r) == own || len(all) == maxEarlier {
				continue
			}
			if took, err := record.Took(r); err == nil && len(took) > 0 {
				all = append(all, took)
			}
		}
		result <- all
	}()
	return result
}
