package underlay

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

const cutTable = "cuts"

// Cut drops every frame between two ports, in both directions and of every protocol, so that neither side is
// refused anything: it hears nothing. Cutting twice is the same as cutting once.
func (s *Switch) Cut(a, b string) error {
	if err := s.Heal(a, b); err != nil {
		return err
	}
	conn, err := s.nftables()
	if err != nil {
		return err
	}
	// Adding a table or chain that exists is no error and changes nothing.
	table := conn.AddTable(&nftables.Table{Name: cutTable, Family: nftables.TableFamilyBridge})
	chain := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for _, way := range [][2]string{{a, b}, {b, a}} {
		conn.AddRule(&nftables.Rule{
			Table: table, Chain: chain, UserData: cutID(way[0], way[1]),
			Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(way[0])},
				&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(way[1])},
				&expr.Counter{},
				&expr.Verdict{Kind: expr.VerdictDrop},
			},
		})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("cut %s off from %s: %w", a, b, err)
	}
	return nil
}

// Heal lets frames pass between two ports again. Healing what is not cut changes nothing.
func (s *Switch) Heal(a, b string) error {
	conn, err := s.nftables()
	if err != nil {
		return err
	}
	rules, err := cutRules(conn, a, b)
	if err != nil || len(rules) == 0 {
		return err
	}
	for _, r := range rules {
		if err := conn.DelRule(r); err != nil {
			return fmt.Errorf("heal %s and %s: %w", a, b, err)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("heal %s and %s: %w", a, b, err)
	}
	return nil
}

// Dropped returns how many frames the cut between two ports has dropped so far, both directions together.
func (s *Switch) Dropped(a, b string) (uint64, error) {
	conn, err := s.nftables()
	if err != nil {
		return 0, err
	}
	rules, err := cutRules(conn, a, b)
	if err != nil {
		return 0, err
	}
	if len(rules) == 0 {
		return 0, fmt.Errorf("%s and %s are not cut off from each other", a, b)
	}
	var total uint64
	for _, r := range rules {
		for _, e := range r.Exprs {
			if c, ok := e.(*expr.Counter); ok {
				total += c.Packets
			}
		}
	}
	return total, nil
}

func (s *Switch) nftables() (*nftables.Conn, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(s.ns)))
	if err != nil {
		return nil, fmt.Errorf("open nftables at the switch: %w", err)
	}
	return conn, nil
}

// cutRules finds the rules of one cut; none when the table is not there.
func cutRules(conn *nftables.Conn, a, b string) ([]*nftables.Rule, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return nil, fmt.Errorf("list the switch's tables: %w", err)
	}
	if len(tables) == 0 {
		return nil, nil
	}
	all, err := conn.GetRules(tables[0], &nftables.Chain{Name: "forward", Table: tables[0]})
	if err != nil {
		return nil, errors.Join(errors.New("list the switch's cuts"), err)
	}
	var found []*nftables.Rule
	for _, r := range all {
		if bytes.Equal(r.UserData, cutID(a, b)) || bytes.Equal(r.UserData, cutID(b, a)) {
			found = append(found, r)
		}
	}
	return found, nil
}

func cutID(from, to string) []byte { return []byte(from + ">" + to) }

// ifname pads an interface name as the kernel compares it (IFNAMSIZ).
func ifname(name string) []byte {
	padded := make([]byte, 16)
	copy(padded, name)
	return padded
}
