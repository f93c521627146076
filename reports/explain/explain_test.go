package explain

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const fixtures = "../../fixtures/traces/"

// explained reads files, and MACHINE=FILE, and answers.
func explained(t *testing.T, files ...string) *Answer {
	t.Helper()
	e := New()
	for _, f := range files {
		machine, path, pinned := strings.Cut(f, "=")
		if !pinned {
			path = f
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if pinned {
			err = e.ReadFrom(machine, path, file)
		} else {
			err = e.Read(path, file)
		}
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return answered(t, e)
}

func answered(t *testing.T, e *Explainer) *Answer {
	t.Helper()
	a, err := e.Answer()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// explainText reads inputs given as name, text, name, text….
func explainText(t *testing.T, nameText ...string) *Answer {
	t.Helper()
	e := New()
	for i := 0; i < len(nameText); i += 2 {
		if err := e.Read(nameText[i], strings.NewReader(nameText[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	return answered(t, e)
}

// sentence is that of a flow.
func sentence(t *testing.T, a *Answer, flow string) string {
	t.Helper()
	for _, f := range a.Findings {
		if strings.HasPrefix(f.Flow, flow) {
			return f.Sentence
		}
	}
	t.Fatalf("no flow %q in\n%s", flow, a.Text(0))
	return ""
}

// The words that flannel#636 must be told in. Its reporter traced a ping from pod to pod, which failed, and
// one from host to pod, which worked, on both machines.
const (
	podToPod = "the request was delivered to the pod behind cni0 on node04, and its reply was routed from " +
		"cni0 to " +
		"flannel.1 on node04 and never seen on node01; 6.0 s later node04 told its own pod 172.16.3.12 " +
		"“host unreachable” (ICMP type 3 code 1), which means that neighbour resolution failed on node04 at " +
		"flannel.1."
	hostToPod = "the request was delivered to the pod behind cni0 on node04, and its reply came back to node01."
	podFlow   = "172.16.0.7 → 172.16.3.12 (ICMP echo, id 492)"
	hostFlow  = "172.16.0.0 → 172.16.3.12 (ICMP echo, id 27983)"
)

func check636(t *testing.T, a *Answer) {
	t.Helper()
	if len(a.Findings) != 2 {
		t.Fatalf("%d flows, want 2:\n%s", len(a.Findings), a.Text(0))
	}
	bad, good := a.Findings[0], a.Findings[1]
	if bad.Flow != podFlow || bad.Sentence != podToPod || !bad.Trouble {
		t.Errorf("first: %+v", bad)
	}
	if good.Flow != hostFlow || good.Sentence != hostToPod || good.Trouble {
		t.Errorf("second: %+v", good)
	}
	if got := strings.Join(a.Machines, " "); got != "node01 node04" {
		t.Errorf("machines: %s", got)
	}
}

func traces(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(fixtures + "flannel-636-*.log")
	if err != nil || len(files) != 4 {
		t.Fatalf("fixtures: %v %v", files, err)
	}
	return files
}

func TestFlannel636(t *testing.T) {
	a := explained(t, traces(t)...)
	check636(t, a)
	want := "request  node01: vethf912d941, cni0 → flannel.1  |  node04: flannel.1 → cni0"
	if got := a.Findings[0].Paths[0]; got != want {
		t.Errorf("path of the request:\n%s\nwant\n%s", got, want)
	}
	if text := a.Text(0); !strings.HasPrefix(text, podFlow+": "+podToPod+"\n") {
		t.Errorf("the worst is not first:\n%s", text)
	}
}

// TestFlannel636AnyOrder mixes all lines of both machines, with noise between, Windows line ends, all
// through one input, packed or not.
func TestFlannel636AnyOrder(t *testing.T) {
	var lines []string
	for _, f := range traces(t) {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSpace(string(raw)), "\n")...)
	}
	for i := range 40 {
		lines = append(lines, []string{
			"", "Mar 12 17:21:14 node01 kernel: [ 3453.1] cni0: port 3(veth0) entered forwarding state",
			"Mar 12 17:21:15 node04 flanneld[712]: I0312 17:21:15.1 712 vxlan_network.go:158] L3 miss",
			"*** what I see ***", "TRACE: ", "\x00\x01\x02", strings.Repeat("x", 300), "trace id ", "IP ",
		}[i%9])
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 636))
		r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		var input bytes.Buffer
		var w io.Writer = &input
		packed := gzip.NewWriter(&input)
		if seed%2 == 1 {
			w = packed
		}
		_, _ = io.WriteString(w, strings.Join(lines, "\r\n"))
		if seed%2 == 1 {
			packed.Close()
		}
		e := New()
		if err := e.Read("standard input", &input); err != nil {
			t.Fatal(err)
		}
		check636(t, answered(t, e))
	}
}

// TestFlannel636Alone gives one machine's trace only: what the other would tell is not claimed.
func TestFlannel636Alone(t *testing.T) {
	a := explained(t, fixtures+"flannel-636-pod-to-pod-node04.log")
	want := strings.Replace(podToPod, " and never seen on node01", ", and there is no trace of another "+
		"machine", 1)
	if got := sentence(t, a, podFlow); got != want {
		t.Errorf("got %s", got)
	}
	a = explained(t, fixtures+"flannel-636-pod-to-pod-node01.log")
	want = "the request was routed from cni0 to flannel.1 on node01, and there is no trace of another " +
		"machine, " +
		"and no reply was seen."
	if got := sentence(t, a, podFlow); got != want {
		t.Errorf("got %s", got)
	}
}

// TestFlannel636Listings adds what the reporter's machine may have shown beside the trace.
func TestFlannel636Listings(t *testing.T) {
	const routes = "default via 192.168.200.1 dev eth0\n172.16.0.0/24 via 172.16.0.0 dev flannel.1 onlink\n" +
		"172.16.3.0/24 dev cni0 proto kernel scope link src 172.16.3.1\n"
	const permanent = "172.16.0.0 dev flannel.1 lladdr ea:f6:36:35:fd:f9 PERMANENT\n"
	for _, tc := range []struct{ name, listing, want string }{
		{
			"failed", routes + "172.16.0.0 dev flannel.1  FAILED\n",
			": neighbour 172.16.0.0 on flannel.1 of node04 is FAILED;",
		},
		{
			"without routes", "172.16.0.0 dev flannel.1  INCOMPLETE\n",
			": neighbour 172.16.0.0 on flannel.1 of node04 is INCOMPLETE;",
		},
		{
			"as flannel before 0.9", "172.16.0.0/16 dev flannel.1\n172.16.0.7 dev flannel.1  FAILED\n",
			": neighbour 172.16.0.7 on flannel.1 of node04 is FAILED;",
		},
		{
			"missing", routes + "172.16.9.0 dev flannel.1 lladdr ea:f6:36:35:fd:f0 PERMANENT\n",
			": node04 has no neighbour entry for 172.16.0.0 on flannel.1;",
		},
		{
			"no route", "172.16.3.0/24 dev cni0 proto kernel scope link src 172.16.3.1\n",
			": node04 has no route to 172.16.0.7;",
		},
		{
			"unreachable", "unreachable 172.16.0.0/16 proto static\n",
			": node04's route to 172.16.0.7 is “unreachable 172.16.0.0/16”;",
		},
		{
			"route moved", "172.16.0.0/24 via 192.168.200.201 dev eth0\n",
			": node04's route to 172.16.0.7 now goes by eth0;",
		},
		{
			"no FDB entry", routes + permanent + "ea:f6:36:35:00:00 dev flannel.1 dst 192.168.200.202 self " +
				"permanent\n",
			": node04 has no FDB entry for ea:f6:36:35:fd:f9 (neighbour 172.16.0.0) on flannel.1;",
		},
		{
			"all well", routes + permanent + "ea:f6:36:35:fd:f9 dev flannel.1 dst 192.168.200.201 self permanent\n",
			"never seen on node01;",
		},
		{
			"as a terminal shows it", "root@node04:~# ip neigh show dev flannel.1\n172.16.0.0 FAILED\n" +
				"[root@node01 ~]$ ip neigh show dev flannel.1\n172.16.3.0 FAILED\n",
			": neighbour 172.16.0.0 on flannel.1 of node04 is FAILED;",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := New()
			// The listing comes first, and only its file's name says whose it is.
			if err := e.Read("lists/node04-neigh.txt", strings.NewReader(tc.listing)); err != nil {
				t.Fatal(err)
			}
			for _, f := range traces(t) {
				raw, _ := os.ReadFile(f)
				if err := e.Read(f, bytes.NewReader(raw)); err != nil {
					t.Fatal(err)
				}
			}
			a := answered(t, e)
			if got := sentence(t, a, podFlow); !strings.Contains(got, tc.want) {
				t.Errorf("want %q in\n%s", tc.want, got)
			}
			if got := sentence(t, a, hostFlow); got != hostToPod {
				t.Errorf("the good one: %s", got)
			}
		})
	}
}

func TestNotATrace(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	for _, tc := range []struct{ name, input, want string }{
		{"empty", "", "empty.txt is empty"},
		{"prose", "Dear all,\nthe network is down.\n", "holds no trace (2 lines read)"},
		{"junk", "\x7fELF\x02\x01\x01\x00\x00" + long, "is neither text nor a pcap"},
		{"huge", long + "\n" + long, "2 of them longer than 65536 bytes"},
		{"half a pcap", "\xd4\xc3\xb2\xa1\x02\x00", "begins like a pcap, but cannot be read as one"},
		{"a pcapng of nothing", "\x0a\x0d\x0d\x0a\xff\xff\xff\x7f\x4d\x3c\x2b\x1a", "cannot be read as one"},
		{"no gzip", "\x1f\x8b junk", "looks like gzip, but cannot be unpacked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := New().Read(strings.ReplaceAll(tc.name, " ", "-")+".txt", strings.NewReader(tc.input))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if tc.name != "no gzip" && !errors.Is(err, ErrNotTrace) {
				t.Errorf("%v is not ErrNotTrace", err)
			}
		})
	}
	e := New()
	if err := e.Read("neigh.txt", strings.NewReader("172.16.0.0 dev flannel.1 FAILED\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Answer(); !errors.Is(err, ErrNoPacket) {
		t.Errorf("a listing alone: %v", err)
	}
}

// TestLongLineBetween skips a line that is too long and reads on.
func TestLongLineBetween(t *testing.T) {
	raw, err := os.ReadFile(fixtures + "flannel-636-pod-to-pod-node01.log")
	if err != nil {
		t.Fatal(err)
	}
	a := explainText(t, "x.log", strings.Repeat("y", 5*maxLine)+"\n"+string(raw))
	if a.Sightings != 11 || len(a.Notes) != 1 {
		t.Errorf("%d sightings, notes %v", a.Sightings, a.Notes)
	}
}

// TestTerminalSafe has names that would move a terminal's cursor.
func TestTerminalSafe(t *testing.T) {
	line := "Mar 12 17:21:14 n kernel: TRACE: raw:PREROUTING:policy:2 IN=\x1b[2Jx OUT= SRC=10.0.0.1 " +
		"DST=10.0.0.2 " +
		"LEN=84 TTL=64 ID=1 PROTO=ICMP TYPE=8 CODE=0 ID=1 SEQ=1\n"
	line += strings.ReplaceAll(line, "raw:PREROUTING:policy:2", "filter:\x1b[2J:rule:1")
	if text := explainText(t, "x", line).Text(0); strings.ContainsRune(text, 0x1b) {
		t.Errorf("%q", text)
	}
}

func TestTextSaysWhatItLeavesOut(t *testing.T) {
	a := explained(t, traces(t)...)
	if text := a.Text(1); !strings.Contains(text, "… and 1 flows more, 0 of them in trouble") {
		t.Error(text)
	}
}

func TestHostOf(t *testing.T) {
	for file, want := range map[string]string{
		"node04.log": "node04", "dir/node04-neigh.txt": "node04", "node04_ip-route.txt": "node04",
		"node04-flannel.1.pcap": "node04", "kern.log.1.gz": "1", "trace.txt": "trace.txt", "-": "standard input",
		"node04-eth0.pcapng": "node04", "worker-a.tcpdump": "worker-a",
	} {
		if got := HostOf(file); got != want {
			t.Errorf("HostOf(%q) = %q, want %q", file, got, want)
		}
	}
}
