package explain

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seeds adds the lines of all text fixtures.
func seeds(f *testing.F) {
	f.Helper()
	for _, pattern := range []string{fixtures + "*.log", "testdata/*/*.txt"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v %v", pattern, files, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			for line := range strings.Lines(string(raw)) {
				f.Add(strings.TrimSuffix(line, "\n"))
			}
		}
	}
}

func FuzzTrace(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, line string) {
		var c clock
		s, host, ok := c.parseTrace(line)
		if ok && (!s.Src.IsValid() || !s.Dst.IsValid() || host != "" && !isHostName(host)) {
			t.Errorf("%q: %q %+v", line, host, s)
		}
	})
}

func FuzzNft(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, lines string) {
		var n nftReader
		for line := range strings.Lines(lines) {
			if s, _, ok := n.line(line); !ok && s.Src.IsValid() {
				t.Errorf("%q: a packet from a line that is none", line)
			}
		}
		if len(n.open) > nftOpen {
			t.Errorf("%d packets are kept", len(n.open))
		}
	})
}

func FuzzDump(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, lines string) {
		var d dumpReader
		check := func(out []dumped) {
			for _, o := range out {
				switch {
				case o.ask != nil:
					if !o.ask.Asked.IsValid() {
						t.Errorf("%q: asks for nothing", lines)
					}
				case !o.sighting.Src.IsValid() || !o.sighting.Dst.IsValid():
					t.Errorf("%q: %+v", lines, o.sighting)
				}
			}
		}
		for line := range strings.Lines(lines) {
			out, ok := d.line(strings.TrimSuffix(line, "\n"))
			if !ok && len(out) > 0 {
				t.Errorf("%q: a packet from a line that is none", line)
			}
			check(out)
		}
		check(d.flush())
	})
}

func FuzzListing(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, line string) {
		if n, ok := parseNeighbour(line); ok && (!n.addr.IsValid() || n.state == "") {
			t.Errorf("%q: %+v", line, n)
		}
		if r, ok := parseRoute(line); ok && !r.to.IsValid() {
			t.Errorf("%q: %+v", line, r)
		}
		if e, ok := parseEntry(line); ok && (e.mac == "" || e.dev == "") {
			t.Errorf("%q: %+v", line, e)
		}
	})
}

// FuzzRead reads anything as an input of its own, captures included, and answers.
func FuzzRead(f *testing.F) {
	for _, pattern := range []string{fixtures + "*.log", "testdata/*/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v %v", pattern, files, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e := New()
		if err := e.Read("node01.log", bytes.NewReader(raw)); err != nil {
			return
		}
		a, err := e.Answer()
		if err != nil {
			if !errors.Is(err, ErrNoPacket) {
				t.Errorf("%v", err)
			}
			return
		}
		text := a.Text(0)
		for _, bad := range []string{"invalid IP", "%!", "\x1b", "<nil>"} {
			if strings.Contains(text, bad) {
				t.Errorf("%q in %q", bad, text)
			}
		}
	})
}
