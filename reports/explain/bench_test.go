package explain

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// traceLog writes kernel logs as two machines would: pings between pods, each request and reply on its 26
// lines, round-robin over so many flows, until there are so many lines. Every hundredth reply is lost.
func traceLog(w io.Writer, lines, flows int) {
	b := bufio.NewWriter(w)
	defer b.Flush()
	n := 0
	line := func(host string, up int, position, devices, packet string) {
		if n < lines {
			fmt.Fprintf(b, "Mar 12 17:21:14 %s kernel: [%5d.%06d] TRACE: %s %s %s\n", host, up/1e6, up%1e6, position,
				devices, packet)
		}
		n++
	}
	forward := []struct{ position, in, out string }{
		{"raw:PREROUTING:policy:2", "a", ""},
		{"nat:PREROUTING:rule:1", "a", ""},
		{"nat:KUBE-SERVICES:return:6", "a", ""},
		{"nat:PREROUTING:policy:3", "a", ""},
		{"filter:FORWARD:rule:1", "a", "b"},
		{"filter:DOCKER-ISOLATION:return:1", "a", "b"},
		{"filter:FORWARD:policy:6", "a", "b"},
		{"nat:POSTROUTING:rule:2", "", "b"},
		{"nat:POSTROUTING:policy:6", "", "b"},
	}
	back := []struct{ position, in, out string }{
		{"raw:PREROUTING:policy:2", "b", ""},
		{"filter:FORWARD:rule:1", "b", "a"},
		{"filter:DOCKER-ISOLATION:return:1", "b", "a"},
		{"filter:FORWARD:policy:6", "b", "a"},
	}
	devices := []string{"cni0", "flannel.1"}
	for i := 0; n < lines; i++ {
		flow, seq := i%flows, i/flows
		pod := fmt.Sprintf("172.16.%d.%d", flow/200%100, 2+flow%200)
		for h, host := range []string{"node01", "node04"} {
			for k, at := range forward {
				ttl := 64 - h
				if at.out != "" {
					ttl--
				}
				dev := map[string]string{"a": devices[h], "b": devices[1-h]}
				line(host, i*1000+k, at.position, "IN="+dev[at.in]+" OUT="+dev[at.out]+" "+
					"MAC=0a:58:ac:10:00:01:0a:58:ac:10:00:07:08:00",
					fmt.Sprintf("SRC=%s DST=172.16.200.12 LEN=84 TOS=0x00 PREC=0x00 TTL=%d ID=%d DF PROTO=ICMP TYPE=8 "+
						"CODE=0 ID=%d SEQ=%d",
						pod, ttl, i%65536, 492+flow/20000, seq%65536))
			}
		}
		for h, host := range []string{"node04", "node01"} {
			if h == 1 && i%100 == 99 {
				break
			}
			for k, at := range back {
				ttl := 64 - h
				if at.out != "" {
					ttl--
				}
				dev := map[string]string{"a": devices[1-h], "b": devices[h]}
				line(host, i*1000+100+k, at.position, "IN="+dev[at.in]+" OUT="+dev[at.out]+" "+
					"MAC=0a:58:ac:10:00:01:0a:58:ac:10:00:07:08:00",
					fmt.Sprintf("SRC=172.16.200.12 DST=%s LEN=84 TOS=0x00 PREC=0x00 TTL=%d ID=%d PROTO=ICMP TYPE=0 "+
						"CODE=0 ID=%d SEQ=%d",
						pod, ttl, (i+9)%65536, 492+flow/20000, seq%65536))
			}
		}
	}
}

// generate writes such a log into a file.
func generate(tb testing.TB, lines, flows int) *os.File {
	tb.Helper()
	file, err := os.Create(filepath.Join(tb.TempDir(), "generated.log"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { file.Close() })
	traceLog(file, lines, flows)
	return file
}

// read explains a file from its beginning.
func read(tb testing.TB, file *os.File) (*Explainer, *Answer) {
	tb.Helper()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		tb.Fatal(err)
	}
	e := New()
	if err := e.Read("generated.log", file); err != nil {
		tb.Fatal(err)
	}
	a, err := e.Answer()
	if err != nil {
		tb.Fatal(err)
	}
	return e, a
}

// held is what an explainer of such a log holds, in bytes.
func held(tb testing.TB, lines, flows int) int64 {
	tb.Helper()
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	file := generate(tb, lines, flows)
	before := heap()
	e, _ := read(tb, file)
	after := heap()
	runtime.KeepAlive(e)
	return after - before
}

// burnt is the processor time that this process has used: what else the machine does is not the reader's
// fault.
func burnt(tb testing.TB) time.Duration {
	tb.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMillionLines reads a million TRACE lines: 250 flows of 150 pings, and one flow of 38,000.
func BenchmarkMillionLines(b *testing.B) {
	const lines = 1_000_000
	for _, flows := range []int{250, 1} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			file := generate(b, lines, flows)
			for b.Loop() {
				began := burnt(b)
				read(b, file)
				if took := burnt(b) - began; took > 10*time.Second {
					b.Fatalf("%d lines took %s, more than 10 s", lines, took)
				}
			}
			b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

// TestMemoryIsConstantPerFlow reads a flow of 1,500 exchanges and one of 6,000: the second may not hold
// more.
func TestMemoryIsConstantPerFlow(t *testing.T) {
	short, long := held(t, 26*1_500, 1), held(t, 26*6_000, 1)
	const slack = 1 << 20
	if long > short+slack {
		t.Errorf("1,500 exchanges hold %d bytes, 6,000 hold %d", short, long)
	}
	const most = 8 << 20
	if long > most {
		t.Errorf("one flow holds %d bytes, more than %d", long, most)
	}
}
