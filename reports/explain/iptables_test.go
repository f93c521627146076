package explain

import (
	"fmt"
	"strings"
	"testing"
)

// tracer writes TRACE lines of one machine, a microsecond apart.
type tracer struct {
	host string
	up   float64
	text strings.Builder
}

func (r *tracer) line(position, devices, packet string) {
	r.up += 1e-6
	in, out, _ := strings.Cut(devices, ">")
	fmt.Fprintf(&r.text, "Mar 12 17:21:14 %s kernel: [%12.6f] TRACE: %s IN=%s OUT=%s "+
		"%s\n", r.host, r.up, position, in,
		out, packet)
}

func echo(src, dst string, kind, seq, id, ttl int) string {
	return fmt.Sprintf("SRC=%s DST=%s LEN=84 TOS=0x00 PREC=0x00 TTL=%d ID=%d DF PROTO=ICMP TYPE=%d CODE=0 "+
		"ID=5 SEQ=%d",
		src, dst, ttl, id, kind, seq)
}

// passes writes a request's way through a machine with nat and filter tables, up to a position.
func (r *tracer) passes(in, out, last string, seq, ttl int) {
	steps := []struct{ position, devices string }{
		{"raw:PREROUTING:policy:2", in + ">"},
		{"nat:PREROUTING:policy:3", in + ">"},
		{"filter:FORWARD:rule:1", in + ">" + out},
		{"filter:KUBE-FORWARD:rule:4", in + ">" + out},
		{"filter:FORWARD:policy:6", in + ">" + out},
		{"nat:POSTROUTING:policy:6", ">" + out},
	}
	for _, s := range steps {
		t := ttl
		if !strings.HasSuffix(s.devices, ">") {
			t--
		}
		r.line(s.position, s.devices, echo("10.1.1.2", "10.1.2.2", 8, seq, 1000+seq, t))
		if s.position == last {
			return
		}
	}
}

func TestIptablesDrops(t *testing.T) {
	for _, tc := range []struct{ name, last, want string }{
		{
			"rule", "filter:KUBE-FORWARD:rule:4",
			"of 2 requests, for 1 the request was dropped on node01 by rule 4 of chain KUBE-FORWARD of table " +
				"filter; for 1 ",
		},
		{
			"arrived only", "nat:PREROUTING:policy:3",
			"of 2 requests, for 1 the request came in on node01 by cni0 and went no further: no route, a failed " +
				"reverse-path check, or forwarding is off; for 1 ",
		},
	} {
		r := tracer{host: "node01", up: 100}
		r.passes("cni0", "flannel.1", "", 1, 64)
		r.passes("cni0", "flannel.1", tc.last, 2, 64)
		// In the first packet's trace that rule was not met, so nothing says that it lets packets pass.
		text := r.text.String()
		if tc.name == "rule" {
			lines := strings.SplitAfter(text, "\n")
			text = strings.Join(append(lines[:3:3], lines[4:]...), "")
		}
		if got := sentence(t, explainText(t, "a.log", text), "10.1.1.2"); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, got, tc.want)
		}
	}
	// A policy is blamed only where it has let no packet pass.
	drop := tracer{host: "node01", up: 100}
	drop.passes("cni0", "flannel.1", "filter:FORWARD:policy:6", 1, 64)
	drop.line("nat:POSTROUTING:policy:6", ">eth0", echo("10.1.0.1", "10.9.9.9", 8, 1, 77, 64))
	want := "the request was dropped on node01 by the policy of chain FORWARD of table filter."
	if got := sentence(t, explainText(t, "a.log", drop.text.String()), "10.1.1.2"); got != want {
		t.Errorf("policy: %s", got)
	}
	drop.passes("cni0", "flannel.1", "", 2, 64)
	got := sentence(t, explainText(t, "a.log", drop.text.String()), "10.1.1.2")
	if strings.Contains(got, "dropped") {
		t.Errorf("a policy that lets pass is blamed: %s", got)
	}
}

// TestIptablesErrors has each ICMP error that a machine sends about a packet it was to send on.
func TestIptablesErrors(t *testing.T) {
	for _, tc := range []struct {
		kind string
		wait float64
		want string
	}{
		{"TYPE=3 CODE=0", 0, "node01 told its own pod 10.1.1.2 “network unreachable” (ICMP type 3 code 0), " +
			"which means that there was no route."},
		{"TYPE=3 CODE=1", 3, "3.0 s later node01 told its own pod 10.1.1.2 “host unreachable” (ICMP type 3 " +
			"code 1), " +
			"which means that neighbour resolution failed on node01 at flannel.1."},
		{"TYPE=3 CODE=1", 0, "“host unreachable” (ICMP type 3 code 1), and at once: a REJECT rule or an " +
			"unreachable route does that."},
		{"TYPE=3 CODE=4", 0, "“packet too big” (ICMP type 3 code 4), which means that the way on carries at " +
			"most 1450 bytes."},
		{"TYPE=3 CODE=13", 0, "“prohibited” (ICMP type 3 code 13), which means that a REJECT rule answered."},
		{"TYPE=11 CODE=0", 0, "“time to live exceeded” (ICMP type 11 code 0), which means that it went in a " +
			"circle."},
	} {
		r := tracer{host: "node01", up: 100}
		r.passes("cni0", "flannel.1", "", 1, 64)
		r.up += tc.wait
		r.line("raw:OUTPUT:policy:2", ">cni0", "SRC=10.1.1.1 DST=10.1.1.2 LEN=112 TTL=64 ID=9 PROTO=ICMP "+tc.kind+
			" ["+echo("10.1.1.2", "10.1.2.2", 8, 1, 1001, 63)+" ] MTU=1450")
		got := sentence(t, explainText(t, "a.log", r.text.String()), "10.1.1.2")
		if !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s after %v s: got\n%s\nwant\n%s", tc.kind, tc.wait, got, tc.want)
		}
	}
}

func TestTraceLine(t *testing.T) {
	var c clock
	line := "<4>2018-03-12T17:26:36.250000+01:00 node01 kernel: [ 3774.885906] TRACE: nat:OUTPUT:rule:1 " +
		"IN= OUT=flannel.1 " +
		"SRC=172.16.0.0 DST=172.16.3.12 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=40486 DF PROTO=TCP SPT=43210 DPT=80 " +
		"SEQ=123456789 ACK=0 WINDOW=64240 RES=0x00 SYN URGP=0 OPT (020405B4) UID=0 GID=0"
	s, host, ok := c.parseTrace(line)
	if !ok || host != "node01" || s.Stage != Output || s.Out != "flannel.1" || s.Proto != protoTCP ||
		s.SrcPort != 43210 || s.DstPort != 80 || !s.HasSeq || s.TCPSeq != 123456789 ||
		s.Flags != flagSYN || s.ID != 40486 || s.Len != 60 {
		t.Errorf("%v %q %+v", ok, host, s)
	}
	if s.At.Up != 3774.885906 || s.At.Wall != 17*3600+26*60+36.25 || s.At.Day == 0 {
		t.Errorf("time %+v", s.At)
	}
	v6 := "[123.5] TRACE: raw:PREROUTING:rule:2 IN=cni0 OUT= SRC=fd00::1 DST=fd00::2 LEN=104 TC=0 " +
		"HOPLIMIT=63 " +
		"FLOWLBL=0 PROTO=ICMPv6 TYPE=128 CODE=0 ID=3 SEQ=4"
	s, host, ok = c.parseTrace(v6)
	if !ok || host != "" || !s.request() || s.TTL != 63 || s.EchoID != 3 || s.Seq != 4 || s.At.Up != 123.5 {
		t.Errorf("%v %q %+v", ok, host, s)
	}
	for _, bad := range []string{
		"TRACE: ", "TRACE: x", "TRACE: a:b:c SRC=1.1.1.1 DST=1.1.1.2", "TRACE: raw:PREROUTING:policy:2 IN= OUT=",
		"TRACE: raw:PREROUTING:policy:2 SRC=1.1.1 DST=1.1.1.2", "TRACES: raw:PREROUTING:policy:2 SRC=1.1.1.1 " +
			"DST=1.1.1.2",
	} {
		if _, _, ok := c.parseTrace(bad); ok {
			t.Errorf("%q is taken for a trace", bad)
		}
	}
}

// TestConnection follows TCP: a SYN that arrives, whose SYN-ACK is lost.
func TestConnection(t *testing.T) {
	const syn = "SRC=10.1.1.2 DST=10.1.2.2 LEN=60 TTL=%d ID=7 DF PROTO=TCP SPT=40000 DPT=80 SEQ=5 ACK=0 " +
		"WINDOW=1 RES=0x00 SYN URGP=0"
	const ack = "SRC=10.1.2.2 DST=10.1.1.2 LEN=60 TTL=%d ID=0 DF PROTO=TCP SPT=80 DPT=40000 SEQ=9 ACK=6 " +
		"WINDOW=1 RES=0x00 ACK SYN URGP=0"
	a, b := tracer{host: "node01"}, tracer{host: "node02"}
	a.line("raw:PREROUTING:policy:2", "cni0>", fmt.Sprintf(syn, 64))
	a.line("filter:FORWARD:policy:6", "cni0>flannel.1", fmt.Sprintf(syn, 63))
	b.line("raw:PREROUTING:policy:2", "flannel.1>", fmt.Sprintf(syn, 63))
	b.line("filter:FORWARD:policy:6", "flannel.1>cni0", fmt.Sprintf(syn, 62))
	b.line("raw:PREROUTING:policy:2", "cni0>", fmt.Sprintf(ack, 64))
	b.line("filter:FORWARD:policy:6", "cni0>flannel.1", fmt.Sprintf(ack, 63))
	got := explainText(t, "a", a.text.String(), "b", b.text.String()).Findings[0]
	want := "the SYN was delivered to the pod behind cni0 on node02, and the SYN-ACK was routed from cni0 " +
		"to flannel.1 on " +
		"node02 and never seen on node01."
	if got.Flow != "10.1.1.2:40000 → 10.1.2.2:80 (TCP)" || got.Sentence != want || !got.Trouble {
		t.Errorf("got %s: %s", got.Flow, got.Sentence)
	}
}

// TestLoop has a packet that two machines send to each other.
func TestLoop(t *testing.T) {
	a, b := tracer{host: "node01"}, tracer{host: "node02"}
	for ttl := 64; ttl > 40; ttl -= 2 {
		a.line("filter:FORWARD:policy:6", "eth1>eth0", echo("10.1.1.2", "10.1.2.2", 8, 1, 9, ttl-1))
		b.line("filter:FORWARD:policy:6", "eth0>eth1", echo("10.1.1.2", "10.1.2.2", 8, 1, 9, ttl-2))
	}
	got := explainText(t, "a", a.text.String(), "b", b.text.String()).Findings[0]
	if !strings.Contains(got.Sentence, "went in a circle") || !got.Trouble {
		t.Errorf("%s", got.Sentence)
	}
}
