package underlay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const dropTable = "drops"

// Drop describes frames that the switch drops without telling either side. A field with its zero value
// matches all frames.
type Drop struct {
	// From is the port at which the frame came in, To the port at which it would leave.
	From, To string
	// Established matches only TCP segments without SYN (RFC 9293, 3.1): new connections are accepted, and then
	// carry nothing.
	Established bool
	// LongerThan matches only frames whose packet has more bytes, the Ethernet header not counted.
	LongerThan int
	// Share matches this share of the frames, 0 to 1, at random.
	Share float64
}

// Drop has the switch drop frames until Pass is called with the same holder. A second call replaces the
// first. Holders are independent of each other.
func (s *Switch) Drop(holder string, drops ...Drop) error {
	conn, err := s.nftables()
	if err != nil {
		return err
	}
	if err := s.Pass(holder); err != nil {
		return err
	}
	// Adding a table or chain that exists is no error and changes nothing.
	table := conn.AddTable(&nftables.Table{Name: dropTable, Family: nftables.TableFamilyBridge})
	chain := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for i, d := range drops {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: dropID(holder, i), Exprs: d.exprs()})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("have the switch drop frames (%s): %w", holder, err)
	}
	return nil
}

// exprs compiles the description as nft(8) would.
func (d Drop) exprs() []expr.Any {
	var all []expr.Any
	name := func(key expr.MetaKey, name string) {
		if name != "" {
			all = append(all, &expr.Meta{Key: key, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(name)})
		}
	}
	// Numbers of the host's byte order are compared as bytes, so they are swapped first.
	compare := func(op expr.CmpOp, value uint32) {
		all = append(all,
			&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
			&expr.Cmp{Op: op, Register: 1, Data: binaryutil.BigEndian.PutUint32(value)})
	}
	name(expr.MetaKeyIIFNAME, d.From)
	name(expr.MetaKeyOIFNAME, d.To)
	if d.Established {
		const tcpFlags, syn = 13, 0x02
		all = append(all,
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{syn}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0}})
	}
	if d.LongerThan > 0 {
		all = append(all, &expr.Meta{Key: expr.MetaKeyLEN, Register: 1})
		compare(expr.CmpOpGt, uint32(d.LongerThan))
	}
	if d.Share > 0 && d.Share < 1 {
		const outOf = 1 << 20
		all = append(all, &expr.Numgen{Register: 1, Type: unix.NFT_NG_RANDOM, Modulus: outOf})
		compare(expr.CmpOpLt, uint32(d.Share*outOf))
	}
	return append(all, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
}

// Pass lets pass again what a holder had dropped. A holder that drops nothing is not an error.
func (s *Switch) Pass(holder string) error {
	conn, err := s.nftables()
	if err != nil {
		return err
	}
	rules, err := dropRules(conn, holder)
	if err != nil || len(rules) == 0 {
		return err
	}
	for _, r := range rules {
		if err := conn.DelRule(r); err != nil {
			return fmt.Errorf("have the switch pass frames again (%s): %w", holder, err)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("have the switch pass frames again (%s): %w", holder, err)
	}
	return nil
}

// DroppedBy counts the frames that the switch has dropped so far for each Drop of a holder, in their order.
func (s *Switch) DroppedBy(holder string) ([]uint64, error) {
	conn, err := s.nftables()
	if err != nil {
		return nil, err
	}
	rules, err := dropRules(conn, holder)
	if err != nil {
		return nil, err
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("the switch drops nothing for %q", holder)
	}
	counts := make([]uint64, len(rules))
	for i, r := range rules {
		for _, e := range r.Exprs {
			if c, ok := e.(*expr.Counter); ok {
				counts[i] = c.Packets
			}
		}
	}
	return counts, nil
}

// Cut drops every frame between two ports, in both directions. Neither side gets an error; it just hears
// nothing of the other. A second Cut changes nothing.
func (s *Switch) Cut(a, b string) error {
	return s.Drop(cutHolder(a, b), Drop{From: a, To: b}, Drop{From: b, To: a})
}

// Heal undoes Cut. Without a Cut it changes nothing.
func (s *Switch) Heal(a, b string) error { return s.Pass(cutHolder(a, b)) }

// Dropped returns how many frames the cut between two ports has dropped so far, both directions together.
func (s *Switch) Dropped(a, b string) (uint64, error) {
	counts, err := s.DroppedBy(cutHolder(a, b))
	if err != nil {
		return 0, fmt.Errorf("%s and %s are not cut off from each other: %w", a, b, err)
	}
	return counts[0] + counts[1], nil
}

func cutHolder(a, b string) string {
	if a > b {
		a, b = b, a
	}
	return "cut " + a + " " + b
}

func (s *Switch) nftables() (*nftables.Conn, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(s.handle)))
	if err != nil {
		return nil, fmt.Errorf("open nftables at the switch: %w", err)
	}
	return conn, nil
}

// dropRules lists the rules of one holder; none if there is no table.
func dropRules(conn *nftables.Conn, holder string) ([]*nftables.Rule, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return nil, fmt.Errorf("list the switch's tables: %w", err)
	}
	var found []*nftables.Rule
	for _, t := range tables {
		if t.Name != dropTable {
			continue
		}
		all, err := conn.GetRules(t, &nftables.Chain{Name: "forward", Table: t})
		if err != nil {
			return nil, fmt.Errorf("list what the switch drops: %w", err)
		}
		for _, r := range all {
			if bytes.HasPrefix(r.UserData, holderID(holder)) {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// holderID is what a holder's rules begin their user data with, which has room for 256 bytes only
// (nf_tables.h, NFT_USERDATA_MAXLEN).
func holderID(holder string) []byte {
	sum := sha256.Sum256([]byte(holder))
	return []byte(hex.EncodeToString(sum[:8]) + "/")
}

func dropID(holder string, i int) []byte {
	return binary.BigEndian.AppendUint32(holderID(holder), uint32(i))
}

// ifname pads an interface name as the kernel compares it (IFNAMSIZ).
func ifname(name string) []byte {
	padded := make([]byte, 16)
	copy(padded, name)
	return padded
}
