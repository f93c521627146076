package follow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nemesh/nemesh/harness/flannelkeys"
)

// Explain says what became of a packet, from where it was seen and what the kernels hold. It is pure: the
// same observation has the same verdict, then and years later.
func Explain(o Observation) Verdict {
	if o.Answered {
		return Verdict{Cause: Delivered, Sentence: fmt.Sprintf("%s got its reply from %s", o.From.Name, o.To.Name)}
	}
	l, back := o.leg(Request), o.leg(Reply)
	_, arrived := l.arrival()
	_, dropped := l.dropped() // perhaps where it had arrived
	if len(back.seen) > 0 || arrived && !dropped {
		l = back
	}
	v := l.explain()
	v.Direction = l.direction
	v.Sentence += l.quotes() + l.kernelReasons()
	return v
}

// explain asks in the order of how sure the answer is: a rule that said so, a loop that was seen, and then
// whoever should have passed the packet on.
func (l leg) explain() Verdict {
	for _, ask := range []func() (Verdict, bool){l.dropped, l.looped, l.rewritten} {
		if v, ok := ask(); ok {
			return v
		}
	}
	stages := l.stages()
	last := l.reached(stages)
	if last == len(stages)-1 {
		return l.afterArrival(stages[last])
	}
	if v, ok := l.misdirected(stages[:last+1]); ok {
		return v
	}
	var before Sighting
	if last >= 0 {
		before, _ = l.at(stages[last])
	}
	return l.missing(stages[last+1], before)
}

// missing asks why the packet was not seen at a stage; before is where it was seen last.
func (l leg) missing(s stage, before Sighting) Verdict {
	switch s.kind {
	case podOut:
		return l.fromPod()
	case vethIn:
		return l.beforeBridge(l.src, l.from, before)
	case bridgeIn:
		return l.beforeBridge(l.src, l.from, before)
	case tunnelOut:
		return l.routed(l.from, l.cameBy(l.src, l.from), l.from.Device, before)
	case uplinkOut:
		if l.tunnelled() {
			return l.encapsulated(before)
		}
		return l.routed(l.from, l.cameBy(l.src, l.from), l.from.Uplink, before)
	case portIn, portOut, uplinkIn:
		return l.onUnderlay(s, before)
	case tunnelIn:
		return l.decapsulated(before)
	case bridgeOut:
		in := l.to.Uplink
		switch {
		case l.from.Name == l.to.Name:
			in = ""
		case l.tunnelled():
			in = l.to.Device
		}
		return l.routed(l.to, in, l.to.Bridge, before)
	case vethOut, podIn:
		return l.toPod(before)
	}
	return l.unexplained(before)
}

// cameBy is the device by which a pod's packet came to its node; "" for the node's own.
func (l leg) cameBy(e End, n Node) string {
	if e.IsPod() {
		return n.Bridge
	}
	return ""
}

// lost begins every sentence about a packet that was seen no more.
func (l leg) lost(c Cause, place, device, format string, args ...any) Verdict {
	return Verdict{
		Cause: c, Node: place, Device: device,
		Sentence: fmt.Sprintf("%s lost on %s at %s: ", l.direction, place, device) + fmt.Sprintf(format, args...),
	}
}

func (l leg) unexplained(before Sighting) Verdict {
	if before.Place == "" {
		why := "it was seen nowhere"
		if l.direction == Request && l.o.SendError != "" {
			why = "it could not be sent: " + l.o.SendError
		}
		return l.lost(Unexplained, l.src.Name, orElse(l.src.Device, l.from.Uplink), "%s", why)
	}
	return l.lost(Unexplained, before.Place, before.Device,
		"it was seen there last, and nothing in the kernel's state says why it went no further")
}

// dropped finds the rule that ended the packet.
func (l leg) dropped() (Verdict, bool) {
	for _, r := range l.o.Rules {
		if !r.Drop || r.Direction != l.direction {
			continue
		}
		rule, known := ruleOf(l.o.State[r.Place], r)
		what := fmt.Sprintf("rule %q (handle %d)", rule.Text, r.Handle)
		switch {
		case r.Handle == 0:
			what = "the policy"
		case !known:
			what = fmt.Sprintf("the rule with handle %d, which has gone since,", r.Handle)
		}
		where := fmt.Sprintf("in chain %s of table %s %s", r.Chain, r.Family, r.Table)
		v := Verdict{
			Cause: RuleDropped, Node: r.Place, Device: l.lastDeviceOn(r.Place),
			Sentence: fmt.Sprintf("%s dropped on %s by %s %s", l.direction, r.Place, what, where),
		}
		switch {
		case r.Place == SwitchName:
			v.Cause = UnderlayCut
		case strings.Contains(strings.ToLower(rule.Text), "reject"):
			v.Cause = RuleRejected
			v.Sentence = fmt.Sprintf("%s rejected on %s by %s %s", l.direction, r.Place, what, where)
		}
		return v, true
	}
	return Verdict{}, false
}

// lastDeviceOn is where a packet was seen last on a place.
func (l leg) lastDeviceOn(place string) string {
	device := ""
	for _, s := range l.seen {
		if s.Place == place {
			device = s.Device
		}
	}
	return device
}

// looped finds a packet that came round again.
func (l leg) looped() (Verdict, bool) {
	times := map[stage]int{}
	var round []string
	again := false
	for _, s := range l.seen {
		at := stage{place: s.Place, device: s.Device, out: s.Out}
		times[at]++
		again = again || times[at] > 2
		if l.o.node(s.Place).Device == s.Device && s.Out && !slices.Contains(round, s.Place) {
			round = append(round, s.Place)
		}
	}
	expired := slices.ContainsFunc(l.o.ICMP, func(e ICMPError) bool {
		return e.Type == 11 && e.Direction == l.direction
	})
	if !again && !expired || len(round) == 0 {
		return Verdict{}, false
	}
	if r, ok := l.o.State[l.to.Name].Lookup(l.dstAddr); ok && l.to.Device != "" && r.Device == l.to.Device {
		return l.ownSubnetTunnelled(r), true
	}
	var routes []string
	for _, name := range round {
		if r, ok := l.o.State[name].Lookup(l.dstAddr); ok {
			routes = append(routes, fmt.Sprintf("%s has %q", name, words(r)))
		}
	}
	node := l.o.node(round[0])
	return l.lost(RoutingLoop, node.Name, node.Device, "it goes round between %s until its TTL ends: %s",
		strings.Join(round, " and "), strings.Join(routes, ", ")), true
}

// rewritten finds a reply that goes elsewhere, since the request arrived with another source.
func (l leg) rewritten() (Verdict, bool) {
	if l.direction != Reply || !l.dst.IsPod() || l.dstAddr == l.dst.Addr ||
		l.o.State[l.to.Name].Holds(l.dstAddr) {
		return Verdict{}, false
	}
	place := l.to.Name
	for _, s := range l.o.leg(Request).seen {
		if s.Src != l.dst.Addr {
			place = s.Place
			break
		}
	}
	by := ""
	for _, r := range l.o.Rules {
		rule, ok := ruleOf(l.o.State[r.Place], r)
		text := strings.ToLower(rule.Text)
		if ok && r.Place == place && (strings.Contains(text, "snat") || strings.Contains(text, "masquerade")) {
			by = fmt.Sprintf(" (rule %q in chain %s of table %s %s)", rule.Text, r.Chain, r.Family, r.Table)
		}
	}
	device := l.from.Device
	if v := l.lastDeviceOn(l.from.Name); v != "" {
		device = v
	}
	return l.lost(SourceRewritten, l.from.Name, device,
		"it goes to %s and not to %s, because %s rewrote the source of the request%s", l.dstAddr, l.dst.Addr,
		place, by), true
}

// misdirected finds a packet that was sent to a node that does not have the subnet.
func (l leg) misdirected(passed []stage) (Verdict, bool) {
	for _, s := range passed {
		have, ok := l.at(s)
		if !ok || s.kind != uplinkOut || have.Tunnel == nil || have.Tunnel.Dst == l.to.Addr {
			continue
		}
		return l.wrongAddress(have.DstMAC, have.Tunnel.Dst), true
	}
	return Verdict{}, false
}

// wrongAddress says that the tunnel leads to an address that is not that of the subnet's owner.
func (l leg) wrongAddress(mac string, to netip.Addr) Verdict {
	whose := ""
	for _, n := range l.o.Nodes {
		if n.Addr == to {
			whose = n.Name
		}
	}
	subnet := l.subnet(l.dstAddr)
	if whose == "" {
		return l.lost(FDBWrongAddress, l.from.Name, l.from.Device,
			"the FDB entry for %s says %s, which is no node's address%s", mac, to, l.leaseSays(l.dstAddr))
	}
	if now, ok := l.lease(l.dstAddr); ok && now.PublicIP == to {
		return l.lost(StaleOwner, l.from.Name, l.from.Device,
			"sent to %s (%s), as the lease of %s says; %s is on %s, which no longer owns it",
			to, whose, now.Subnet, l.dstAddr, l.to.Name)
	}
	return l.lost(StaleOwner, l.from.Name, l.from.Device,
		"sent to %s (%s), which no longer owns %s%s", to, whose, subnet, l.leaseSays(l.dstAddr))
}

// lease finds whose subnet an address is in.
func (l leg) lease(a netip.Addr) (flannelkeys.Lease, bool) {
	for _, have := range l.o.Leases {
		if have.Subnet.Contains(a) {
			return have, true
		}
	}
	return flannelkeys.Lease{}, false
}

// subnet names the subnet of an address; the address alone when no lease is known.
func (l leg) subnet(a netip.Addr) string {
	if have, ok := l.lease(a); ok {
		return have.Subnet.String()
	}
	return a.String()
}

// leaseSays tells the owner of an address's subnet, if it is known.
func (l leg) leaseSays(a netip.Addr) string {
	if have, ok := l.lease(a); ok {
		return fmt.Sprintf("; the lease of %s says %s", have.Subnet, have.PublicIP)
	}
	return ""
}

// leaseSaysMAC tells the published MAC of the owner's VXLAN device, if it is known.
func (l leg) leaseSaysMAC(a netip.Addr) string {
	if have, ok := l.lease(a); ok && have.VtepMAC != "" {
		return fmt.Sprintf("; the lease of %s says %s", have.Subnet, have.VtepMAC)
	}
	return ""
}

// unanswered counts the questions for an address that nobody answered.
func (l leg) unanswered(place, device string, target netip.Addr) string {
	asked := 0
	for _, a := range l.o.ARP {
		if a.Place != place || a.Device != device {
			continue
		}
		if a.Request && a.Out && a.Target == target {
			asked++
		}
		if !a.Request && !a.Out && a.Sender == target {
			return " (who-has was answered meanwhile)"
		}
	}
	switch asked {
	case 0:
		return ""
	case 1:
		return " (who-has unanswered once)"
	}
	return fmt.Sprintf(" (who-has unanswered %d times)", asked)
}

// quotes lists the ICMP errors about the packet.
func (l leg) quotes() string {
	text := ""
	for _, e := range l.o.ICMP {
		if e.Direction == l.direction {
			text += fmt.Sprintf("; ICMP %s from %s", e.words(), l.who(e.Reporter))
		}
	}
	return text
}

// who names whoever has an address.
func (l leg) who(a netip.Addr) string {
	names := []string{l.src.Name, l.dst.Name}
	for _, n := range l.o.Nodes {
		names = append(names, n.Name)
	}
	for _, name := range names {
		if l.o.State[name].Holds(a) {
			return fmt.Sprintf("%s (%s)", name, a)
		}
	}
	return a.String()
}

// kernelReasons lists the kernel's own words, each once.
func (l leg) kernelReasons() string {
	var reasons []string
	for _, d := range l.o.Drops {
		if !slices.Contains(reasons, d.Reason) {
			reasons = append(reasons, d.Reason)
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	return "; the kernel's drop reason: " + strings.Join(reasons, ", ")
}

// words are those of RFC 792, RFC 1812 and RFC 1191.
func (e ICMPError) words() string {
	names := map[[2]int]string{
		{3, 0}: "network unreachable", {3, 1}: "host unreachable", {3, 2}: "protocol unreachable",
		{3, 3}: "port unreachable", {3, 4}: "fragmentation needed", {3, 9}: "network prohibited",
		{3, 10}: "host prohibited", {3, 13}: "administratively prohibited", {5, 0}: "redirect for the network",
		{5, 1}: "redirect for the host", {11, 0}: "TTL exceeded",
	}
	name := names[[2]int{e.Type, e.Code}]
	if e.MTU > 0 {
		name += fmt.Sprintf(", MTU %d", e.MTU)
	}
	return strings.TrimSpace(fmt.Sprintf("%s (type %d code %d)", name, e.Type, e.Code))
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
