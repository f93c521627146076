package explain

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// sampled is how many exchanges of one flow are followed. Of a flow with more, these are followed through
// every input, because they are chosen by a hash of what identifies them and not by when they come; the
// others are only counted, by the density of the hashes.
const sampled = 512

// maxFlows is how many flows are followed. Further ones are counted.
const maxFlows = 50_000

// maxStrings bounds the table of names, against inputs in which no name comes twice.
const maxStrings = 100_000

// follower joins sightings to flows.
type follower struct {
	hosts     []hostInfo
	byName    map[string]int32
	flows     map[flowKey]*flow
	order     []*flow
	loose     []complaint
	strings   map[string]string
	rules     map[spoken]*spoken
	sightings int
	overflow  int
	longLines int
}

// hostInfo is a machine, as its inputs show it.
type hostInfo struct {
	name    string
	guessed bool
	// traced says that packets were seen there, not only listings.
	traced bool
	// hooks are the tables that packets met, by hook; bridges the devices behind which ports were named.
	hooks   map[hookTable]bool
	bridges map[string]bool
	machine machine
}

type hookTable struct {
	stage Stage
	table string
}

// flowKey names a conversation, the same for both directions. Of an echo, lo is who asks; of others, the
// lower end.
type flowKey struct {
	lo, hi         netip.Addr
	loPort, hiPort uint16
	id             uint16
	proto          uint8
}

// flow is one conversation.
type flow struct {
	key       flowKey
	number    int
	echo      bool
	carrier   bool
	exchanges map[uint64]*exchange
	// limit is the highest hash that is still followed.
	limit      uint64
	complaints []complaint
	// began is the direction of a SYN without ACK, plus one.
	began int8
}

// exchange is a packet and its answer, where packet and answer can be told to belong together (echoes),
// else one packet alone. Direction 0 goes from lo to hi.
type exchange struct {
	seq     uint16
	packets [2][]*packet
}

func newFollower() *follower {
	return &follower{
		byName: map[string]int32{}, flows: map[flowKey]*flow{}, strings: map[string]string{},
		rules: map[spoken]*spoken{},
	}
}

// host numbers a machine.
func (f *follower) host(name string, guessed bool) int32 {
	name = f.intern(name)
	if i, ok := f.byName[name]; ok {
		f.hosts[i].guessed = f.hosts[i].guessed && guessed
		return i
	}
	i := int32(len(f.hosts))
	f.byName[name] = i
	f.hosts = append(f.hosts, hostInfo{
		name: name, guessed: guessed, hooks: map[hookTable]bool{}, bridges: map[string]bool{},
	})
	return i
}

// intern keeps one copy of a name and lets go of the line it was in. What could play with a terminal is
// quoted.
func (f *follower) intern(s string) string {
	if s == "" {
		return ""
	}
	if known, ok := f.strings[s]; ok {
		return known
	}
	clean := s
	for _, r := range s {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			clean = strconv.QuoteToASCII(s)
			break
		}
	}
	clean = strings.Clone(clean)
	if len(f.strings) < maxStrings {
		f.strings[strings.Clone(s)] = clean
	}
	return clean
}

// spoke keeps one copy of a rule's place.
func (f *follower) spoke(s *Sighting) *spoken {
	key := spoken{s.Table, s.Chain, s.Kind, s.Rule}
	if known, ok := f.rules[key]; ok {
		return known
	}
	known := &spoken{f.intern(s.Table), f.intern(s.Chain), f.intern(s.Kind), f.intern(shortRule(s.Rule))}
	if len(f.rules) < maxStrings {
		key = spoken{strings.Clone(s.Table), strings.Clone(s.Chain), strings.Clone(s.Kind), strings.Clone(s.Rule)}
		f.rules[key] = known
	}
	return known
}

// ask takes in an ARP packet.
func (f *follower) ask(w origin, a Ask) {
	m := &f.hosts[w.host].machine
	if a.Reply {
		m.answer(a.Asked)
		return
	}
	if a.Sent && a.Asking.IsValid() {
		m.owns(a.Asking)
	}
	m.ask(question{dev: f.intern(a.Device), addr: a.Asked}, 1)
}

// see takes in a packet at a place.
func (f *follower) see(w origin, s *Sighting) {
	f.sightings++
	h := &f.hosts[w.host]
	h.traced = true
	if s.housekeeping() {
		return
	}
	s.In, s.Out, s.Port, s.Device = f.intern(s.In), f.intern(s.Out), f.intern(s.Port), f.intern(s.Device)
	s.Drop = f.intern(s.Drop)
	rule := f.spoke(s)
	if at := (hookTable{s.Stage, rule.table}); s.Stage != Wire && s.Stage != anyStage && !h.hooks[at] {
		h.hooks[at] = true
	}
	if s.Port != "" && !h.bridges[s.In] {
		h.bridges[s.In] = true
	}
	if isError(&s.Packet) {
		f.complain(w.host, s)
		return
	}
	fl, direction := f.flow(&s.Packet)
	if fl == nil {
		f.overflow++
		return
	}
	if s.Flags&(flagSYN|flagACK) == flagSYN {
		fl.began = int8(direction) + 1
	}
	if ex := fl.exchange(exchangeKey(&s.Packet, direction), s.Seq); ex != nil {
		ex.packet(direction, &s.Packet).see(w.host, s, rule)
	}
}

// flow finds or makes the flow of a packet and says in which direction of it the packet goes; nil when
// there are too many.
func (f *follower) flow(p *Packet) (*flow, int) {
	key, direction := keyOf(p)
	fl, ok := f.flows[key]
	if !ok {
		if len(f.flows) >= maxFlows {
			return nil, 0
		}
		fl = &flow{
			key: key, number: len(f.order), echo: p.echo(), carrier: p.carrier(), limit: ^uint64(0),
			exchanges: map[uint64]*exchange{},
		}
		f.flows[key] = fl
		f.order = append(f.order, fl)
	}
	return fl, direction
}

func keyOf(p *Packet) (flowKey, int) {
	key := flowKey{lo: p.Src, hi: p.Dst, loPort: p.SrcPort, hiPort: p.DstPort, proto: p.Proto}
	switch {
	case p.echo():
		key.id = p.EchoID
		if p.reply() {
			key.lo, key.hi = key.hi, key.lo
			return key, 1
		}
		return key, 0
	case p.carrier():
		// The source port is a hash of the content and the answer has another: one way only.
		key.loPort = 0
		return key, 0
	}
	if c := cmp.Or(key.lo.Compare(key.hi), cmp.Compare(key.loPort, key.hiPort)); c > 0 {
		key.lo, key.hi, key.loPort, key.hiPort = key.hi, key.lo, key.hiPort, key.loPort
		return key, 1
	}
	return key, 0
}

// exchangeKey hashes what tells a packet from others of its flow: an echo's sequence number, for both
// directions; else the identification, or what else there is. A SYN keeps its sequence number in every
// format.
func exchangeKey(p *Packet, direction int) uint64 {
	if p.echo() {
		return mix(uint64(p.Seq))
	}
	side := uint64(direction+1) << 56
	switch {
	case p.Proto == protoTCP && p.Flags&flagSYN != 0 && p.HasSeq:
		return mix(side | 1<<48 | uint64(p.TCPSeq))
	case p.ID >= 0 && p.Src.Is4():
		return mix(side | 2<<48 | uint64(p.ID))
	case p.HasSeq:
		return mix(side | 3<<48 | uint64(p.TCPSeq))
	default:
		return mix(side | 4<<48 | uint64(uint32(p.Len)))
	}
}

// mix is splitmix64's finaliser: neighbouring numbers get far hashes.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// exchange finds or makes one; nil when it is not among those that are followed.
func (fl *flow) exchange(key uint64, seq uint16) *exchange {
	if ex, ok := fl.exchanges[key]; ok {
		return ex
	}
	if key > fl.limit {
		return nil
	}
	if len(fl.exchanges) >= 2*sampled {
		fl.thin()
		if key > fl.limit {
			return nil
		}
	}
	ex := &exchange{seq: seq}
	fl.exchanges[key] = ex
	return ex
}

// packet finds or makes the packet in an exchange. Repeats, by their identification, are packets of their
// own.
func (ex *exchange) packet(direction int, p *Packet) *packet {
	const repeats = 4
	all := ex.packets[direction]
	for _, q := range all {
		if q.id == p.ID || q.id < 0 || p.ID < 0 {
			q.id = max(q.id, p.ID)
			q.length = max(q.length, p.Len)
			return q
		}
	}
	if len(all) >= repeats {
		return all[repeats-1]
	}
	q := &packet{id: p.ID, length: p.Len, flags: p.Flags}
	ex.packets[direction] = append(all, q)
	return q
}
