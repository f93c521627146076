package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/plan"
)

// tableName is the overlay's own nftables table, one per family.
const tableName = "nemesh-overlay"

// masqueradeMark exempts packets from masquerading, as in flannel's rules. kube-proxy sets it on packets
// that it masquerades itself.
const masqueradeMark = 0x4000

// rule is one rule of a chain, with a tag by which it is recognised in the kernel.
type rule struct {
	chain string
	tag   string
	exprs []expr.Any
}

// rules sets the overlay's tables. Each is replaced in one transaction, so it is never absent. A table that
// is as planned is not written.
func (p *pass) rules() {
	conn, err := nftables.New()
	if err != nil {
		p.fail(fmt.Errorf("open nftables: %w", err))
		return
	}
	for _, want := range p.want.Rules {
		rules := compile(want)
		same, err := current(conn, familyOf(want), rules)
		if err != nil {
			p.fail(err)
			continue
		}
		if !same {
			p.do("rules", fmt.Sprintf("wrote table %s for %s", tableName, want.Network),
				replaceTable(conn, familyOf(want), rules))
		}
		p.foreign(conn, want)
	}
}

func familyOf(r plan.Rules) nftables.TableFamily {
	if r.Network.Addr().Is6() {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

// compile turns the wanted rules into nftables' terms. They are, in this order, and mean what flannel's do:
//
//	postrouting: mark 0x4000 return
//	             from own subnet to the network return, and from the network to the own subnet return:
//	             pods see each other's real addresses
//	             from elsewhere to the own subnet return
//	             from the network, not to multicast: masquerade
//	             from elsewhere to the network: masquerade
//	forward:     from or to the network accept
func compile(r plan.Rules) []rule {
	var rules []rule
	add := func(chain string, parts ...[]expr.Any) {
		var all []expr.Any
		for _, p := range parts {
			all = append(all, p...)
		}
		rules = append(rules, rule{chain: chain, exprs: all})
	}
	network, own := r.Network, r.Subnet
	multicast := netip.MustParsePrefix("224.0.0.0/4")
	if network.Addr().Is6() {
		multicast = netip.MustParsePrefix("ff00::/8")
	}
	back := []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	masquerade := []expr.Any{&expr.Masq{FullyRandom: r.RandomFully}}
	if r.Masquerade {
		add(postrouting, marked(), back)
		add(postrouting, source(own, true), destination(network, true), back)
		add(postrouting, source(network, true), destination(own, true), back)
		add(postrouting, source(network, false), destination(own, true), back)
		add(postrouting, source(network, true), destination(multicast, false), masquerade)
		add(postrouting, source(network, false), destination(network, true), masquerade)
	}
	if r.Forward {
		add(forward, source(network, true), accept)
		add(forward, destination(network, true), accept)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "v1 %+v", r))
	for i := range rules {
		rules[i].tag = fmt.Sprintf("overlay %s %d", hex.EncodeToString(sum[:8]), i)
	}
	return rules
}

const (
	postrouting = "postrouting"
	forward     = "forward"
)

func chains(table *nftables.Table) []*nftables.Chain {
	return []*nftables.Chain{
		{
			Name: postrouting, Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		},
		{
			Name: forward, Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		},
	}
}

// current reports whether the kernel holds exactly these rules, in this order.
func current(conn *nftables.Conn, family nftables.TableFamily, rules []rule) (bool, error) {
	table := &nftables.Table{Name: tableName, Family: family}
	next := 0
	for _, c := range chains(table) {
		have, err := dump(func() ([]*nftables.Rule, error) { return conn.GetRules(table, c) })
		if errors.Is(err, unix.ENOENT) {
			return false, nil // the chain is not there, or the table
		}
		if err != nil {
			return false, fmt.Errorf("list rules of chain %s: %w", c.Name, err)
		}
		for _, h := range have {
			if next == len(rules) || rules[next].chain != c.Name || string(h.UserData) != rules[next].tag ||
				len(h.Exprs) != len(rules[next].exprs) {
				return false, nil
			}
			next++
		}
	}
	return next == len(rules), nil
}

// replaceTable writes a table in one transaction. It adds the table before it deletes it, so that deleting
// works whether or not the table existed.
func replaceTable(conn *nftables.Conn, family nftables.TableFamily, rules []rule) error {
	table := &nftables.Table{Name: tableName, Family: family}
	conn.AddTable(table)
	conn.DelTable(table)
	conn.AddTable(table)
	byName := map[string]*nftables.Chain{}
	for _, c := range chains(table) {
		byName[c.Name] = conn.AddChain(c)
	}
	for _, r := range rules {
		conn.AddRule(&nftables.Rule{Table: table, Chain: byName[r.chain], UserData: []byte(r.tag), Exprs: r.exprs})
	}
	return conn.Flush()
}

func marked() []expr.Any {
	mark := binaryutil.NativeEndian.PutUint32(masqueradeMark)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mark, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mark},
	}
}

func source(p netip.Prefix, in bool) []expr.Any { return match(p, in, 12, 8) }

func destination(p netip.Prefix, in bool) []expr.Any { return match(p, in, 16, 24) }

// match compares an address of the packet's network header, at offset4 or offset6, with a prefix.
func match(p netip.Prefix, in bool, offset4, offset6 uint32) []expr.Any {
	offset := offset4
	if p.Addr().Is6() {
		offset = offset6
	}
	size := p.Addr().BitLen() / 8
	op := expr.CmpOpEq
	if !in {
		op = expr.CmpOpNeq
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(size)},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: uint32(size), Mask: toIPNet(p).Mask,
			Xor: make([]byte, size),
		},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}
