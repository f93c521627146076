package main

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/reports/text"
)

func TestProgressIsRedrawnInPlace(t *testing.T) {
	var out strings.Builder
	columns := 80
	s := &screen{out: &out, columns: func() int { return columns }}
	now := time.Now()
	one := text.Progress{Total: 9, Done: 1, Running: []string{"flannel-636"}}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { s.progress(text.Progress{}, now) }, ""},
		{func() { s.progress(one, now) }, "1/9 done · running flannel-636"},
		{func() { s.progress(one, now.Add(time.Hour)) }, ""}, // as it was
		{func() { s.print("ok  flannel-636\n") }, clearLine + "ok  flannel-636\n"},
		{func() { s.print("ok  lease\n") }, "ok  lease\n"},
		{func() { columns = 9; s.progress(one, now) }, "1/9 done"},
		{func() { s.progress(text.Progress{Total: 9, Done: 2}, now) }, clearLine + "2/9 done"},
		{s.clear, clearLine},
		{s.clear, ""},
	} {
		out.Reset()
		step.do()
		if got := out.String(); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
}

// Where there is no terminal, progress is one whole line a minute at most, without control characters.
func TestProgressInALog(t *testing.T) {
	var out strings.Builder
	began := time.Now()
	s := &screen{out: &out, written: began}
	for at := range 200 {
		p := text.Progress{Total: 300, Done: at, Failed: at / 100}
		if at > 130 {
			p.Kept = []string{"42"}
		}
		s.progress(p, began.Add(time.Duration(at)*time.Second))
		if at == 60 {
			s.print("ok  flannel-636\n")
		}
	}
	want := "60/300 done\nok  flannel-636\n120/300 done · 1 failed\n"
	if got := out.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestScreenOfATerminal(t *testing.T) {
	master, slave := openPTY(t)
	size := &unix.Winsize{Row: 24, Col: 50}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	type env = map[string]string
	for name, c := range map[string]struct {
		file    *os.File
		env     env
		columns int // 0: nothing is redrawn
		color   bool
	}{
		"terminal":    {slave, env{"TERM": "xterm"}, 50, true},
		"NO_COLOR":    {slave, env{"TERM": "xterm", "NO_COLOR": ""}, 50, false},
		"no cursor":   {slave, env{"TERM": "dumb"}, 0, false},
		"no terminal": {pipe, env{"TERM": "xterm"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "") // so that it is put back
			os.Unsetenv("NO_COLOR")
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			s := newScreen(c.file, time.Now())
			columns := 0
			if s.columns != nil {
				columns = s.columns()
			}
			if columns != c.columns || s.style.Color != c.color {
				t.Errorf("%d columns, colours %t", columns, s.style.Color)
			}
		})
	}
}

// openPTY opens a pseudoterminal (pty(7)).
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudoterminal here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func TestEarlierRuns(t *testing.T) {
	runs := t.TempDir()
	for name, lines := range map[string]string{
		"1-old":     verdictLine("a", `"state":"passed","duration":1000000000`),
		"2-older":   verdictLine("a", `"state":"passed","duration":2000000000`),
		"3-nothing": `{"at":1,"kind":"run","run":{"version":2}}`,
		"4-newer": verdictLine("a", `"state":"failed","duration":9000000000,"kept":6000000000`) +
			verdictLine("b", `"state":"not proven","duration":1`) +
			verdictLine("c", `"state":"failed","duration":1,"interrupted":true`) +
			`{"at":1,"kind":"log","log":{"text":"\"kind\":\"verdict\""}}` + "\n" + "damaged \"kind\":\"verdict\"\n" +
			verdictLine("d", `"state":"skipped","duration":5`),
		"5-newest": verdictLine("a", `"state":"passed","duration":4000000000`),
		"6-own":    verdictLine("a", `"state":"passed","duration":7000000000`),
	} {
		if err := os.MkdirAll(filepath.Join(runs, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(runs, name, "record.jsonl"), []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := <-earlierRuns(runs, filepath.Join(runs, "6-own"))
	want := []map[string]time.Duration{
		{"a": 4 * time.Second}, {"a": 3 * time.Second, "d": 5}, {"a": 2 * time.Second},
	}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if !maps.Equal(got[i], want[i]) {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}

func verdictLine(scenario, verdict string) string {
	return `{"at":1,"kind":"verdict","scenario":"` + scenario + `","verdict":{` + verdict + "}}\n"
}
