package explain

import (
	"path/filepath"
	"regexp"
	"strings"
)

// origin is where an input, or a line of it, comes from.
type origin struct {
	host int32
	// guessed says that the host is only the name of a file.
	guessed bool
}

// textReader tries each line as each format, as a terminal may show several.
type textReader struct {
	follow     *follower
	file, here origin
	nft        nftReader
	dump       dumpReader
	clock      clock
}

// line takes in one line; false where it is none of any format.
func (t *textReader) line(line string) bool {
	if s, host, ok := t.clock.parseTrace(line); ok {
		t.follow.see(t.from(host), &s)
		return true
	}
	if s, host, ok := t.nft.line(line); ok {
		if s.Src.IsValid() {
			t.follow.see(t.from(host), &s)
		}
		return true
	}
	if out, ok := t.dump.line(line); ok {
		t.dumped(out)
		return true
	}
	m := &t.follow.hosts[t.here.host].machine
	if n, ok := parseNeighbour(line); ok {
		if len(m.neighbours) < maxListed {
			n.dev = t.follow.intern(n.dev)
			m.neighbours = append(m.neighbours, n)
		}
		return true
	}
	if e, ok := parseEntry(line); ok {
		if len(m.entries) < maxListed {
			e.dev = t.follow.intern(e.dev)
			m.entries = append(m.entries, e)
		}
		return true
	}
	if r, ok := parseRoute(line); ok {
		if len(m.routes) < maxListed {
			r.dev = t.follow.intern(r.dev)
			m.routes = append(m.routes, r)
		}
		return true
	}
	t.prompt(line)
	return false
}

// flush takes in what waited for another line.
func (t *textReader) flush() { t.dumped(t.dump.flush()) }

func (t *textReader) dumped(all []dumped) {
	for _, d := range all {
		if d.ask != nil {
			t.follow.ask(t.here, *d.ask)
			continue
		}
		t.follow.see(t.here, d.sighting)
	}
}

// from is the machine a line names, or else that of the input. Where the caller has named the machine, a
// line does not.
func (t *textReader) from(host string) origin {
	if host == "" || !t.file.guessed {
		return t.here
	}
	return origin{host: t.follow.host(host, false)}
}

// shell matches "root@node04:~# ip neigh" and "[root@node04 ~]$ tcpdump -ni flannel.1".
var shell = regexp.MustCompile(
	`^\s*(?:\[?[\w.-]+@([\w.-]+)[^#$]*)?[#$] (?:sudo )?((?:ip|bridge|tcpdump|nft)\b.*)$`)

// device matches tcpdump's -i, alone or after other letters.
var device = regexp.MustCompile(`\s-\w*i\s*([\w.@-]+)`)

// prompt reads a shell's prompt with a command whose output follows: it names the machine, and tcpdump's
// device.
func (t *textReader) prompt(line string) {
	if len(line) > 512 || !strings.ContainsAny(line, "#$") {
		return
	}
	m := shell.FindStringSubmatch(line)
	if m == nil {
		return
	}
	if m[1] != "" && t.file.guessed && isHostName(m[1]) {
		t.here = origin{host: t.follow.host(m[1], false)}
	}
	if strings.HasPrefix(m[2], "tcpdump") {
		t.dump.device = ""
		if d := device.FindStringSubmatch(m[2]); d != nil && d[1] != "any" {
			t.dump.device = t.follow.intern(d[1])
		}
	}
}

// notHosts are the words of a file's name that say what is in it, not whose it is.
var notHosts = map[string]bool{
	"log":        true,
	"txt":        true,
	"out":        true,
	"pcap":       true,
	"pcapng":     true,
	"cap":        true,
	"gz":         true,
	"text":       true,
	"neigh":      true,
	"neighbour":  true,
	"neighbours": true,
	"neighbor":   true,
	"neighbors":  true,
	"arp":        true,
	"route":      true,
	"routes":     true,
	"fdb":        true,
	"bridge":     true,
	"ip":         true,
	"nft":        true,
	"monitor":    true,
	"trace":      true,
	"traces":     true,
	"tcpdump":    true,
	"dump":       true,
	"kern":       true,
	"kernel":     true,
	"syslog":     true,
	"dmesg":      true,
	"messages":   true,
	"iptables":   true,
}

// devicesIn finds a device's name in that of a file.
var devicesIn = regexp.MustCompile(`(?:^|[-_. ])(any|` +
	`(?:flannel\.|eth|ens|eno|enp\d+s|cni|cbr|docker|vxlan|bond|veth|cali)[0-9a-f]+)(?:[-_. ]|$)`)

// deviceOf guesses the device of a capture from the name of its file: "node04-flannel.1.pcap"; empty if
// none.
func deviceOf(file string) string {
	m := devicesIn.FindStringSubmatch(filepath.Base(file))
	if m == nil || m[1] == "any" {
		return ""
	}
	return m[1]
}

// HostOf guesses a machine's name from that of a file: "traces/node04-neigh.txt" is of node04.
func HostOf(file string) string {
	if file == "-" || file == "standard input" {
		return "standard input"
	}
	base := filepath.Base(file)
	bare := devicesIn.ReplaceAllString(base, ".")
	words := strings.FieldsFunc(bare, func(r rune) bool { return r == '-' || r == '_' || r == '.' || r == ' ' })
	var kept []string
	for _, w := range words {
		if !notHosts[strings.ToLower(w)] {
			kept = append(kept, w)
		}
	}
	if len(kept) == 0 {
		return base
	}
	return strings.Join(kept, "-")
}
