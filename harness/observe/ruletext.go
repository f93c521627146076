package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// families by the names that nft uses (linux/netfilter.h).
var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_ARP: "arp", unix.NFPROTO_NETDEV: "netdev",
	unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_IPV6: "ip6",
}

// FamilyName returns the name that nft has for a family of tables, by its NFPROTO number.
func FamilyName(family uint8) string {
	if name, ok := families[family]; ok {
		return name
	}
	return fmt.Sprintf("family %d", family)
}

// exactText writes down all that a rule does.
func exactText(exprs []expr.Any) string {
	var parts []string
	for _, e := range exprs {
		if _, ok := e.(*expr.Counter); ok {
			continue // what it has counted is not what it does
		}
		raw, err := json.Marshal(e)
		if err != nil {
			raw = fmt.Appendf(nil, "%+v", e)
		}
		parts = append(parts, kindOf(e)+string(raw))
	}
	return strings.Join(parts, " ")
}

// kindOf is the name of an expression's type.
func kindOf(e expr.Any) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr."))
}

// ruleText renders a rule much as nft does. What it does not know it names in brackets, so that nothing of a
// rule is left out silently.
func ruleText(exprs []expr.Any) string {
	var parts []string
	left := map[uint32]string{} // what is in a register
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Meta:
			left[e.Register] = metaText(e)
			if e.SourceRegister {
				parts = append(parts, metaText(e)+" set")
			}
		case *expr.Payload:
			left[e.DestRegister] = payloadText(e)
		case *expr.Bitwise:
			left[e.DestRegister] = maskText(left[e.SourceRegister], e.Mask)
		case *expr.Ct:
			left[e.Register] = fmt.Sprintf("ct key %d", e.Key)
		case *expr.Fib:
			left[e.Register] = "fib"
		case *expr.Cmp:
			parts = append(parts, compareText(left[e.Register], e))
		case *expr.Lookup:
			parts = append(parts, left[e.SourceRegister]+" @"+e.SetName)
		case *expr.Counter, *expr.Immediate:
		case *expr.Match:
			parts = append(parts, "[xt "+e.Name+"]")
		case *expr.Target:
			parts = append(parts, e.Name)
		case *expr.Log:
			parts = append(parts, "log")
		case *expr.Masq:
			parts = append(parts, "masquerade")
		case *expr.NAT:
			parts = append(parts, natText(e))
		case *expr.Reject:
			parts = append(parts, "reject")
		case *expr.Verdict:
			parts = append(parts, verdictText(e))
		default:
			parts = append(parts, "["+kindOf(e)+"]")
		}
	}
	return strings.Join(parts, " ")
}

func metaText(m *expr.Meta) string {
	switch m.Key {
	case expr.MetaKeyIIFNAME:
		return "iifname"
	case expr.MetaKeyOIFNAME:
		return "oifname"
	case expr.MetaKeyIIF:
		return "iif"
	case expr.MetaKeyOIF:
		return "oif"
	case expr.MetaKeyL4PROTO:
		return "meta l4proto"
	case expr.MetaKeyMARK:
		return "meta mark"
	case expr.MetaKeyNFPROTO:
		return "meta nfproto"
	}
	return fmt.Sprintf("meta key %d", m.Key)
}

// payloadText knows the fields of an IPv4 header and the ports.
func payloadText(p *expr.Payload) string {
	switch {
	case p.Base == expr.PayloadBaseNetworkHeader && p.Offset == 12 && p.Len == 4:
		return "ip saddr"
	case p.Base == expr.PayloadBaseNetworkHeader && p.Offset == 16 && p.Len == 4:
		return "ip daddr"
	case p.Base == expr.PayloadBaseNetworkHeader && p.Offset == 12 && p.Len < 4:
		return fmt.Sprintf("ip saddr/%d", 8*p.Len)
	case p.Base == expr.PayloadBaseNetworkHeader && p.Offset == 16 && p.Len < 4:
		return fmt.Sprintf("ip daddr/%d", 8*p.Len)
	case p.Base == expr.PayloadBaseNetworkHeader && p.Offset == 9 && p.Len == 1:
		return "ip protocol"
	case p.Base == expr.PayloadBaseTransportHeader && p.Offset == 0 && p.Len == 1:
		return "icmp type"
	case p.Base == expr.PayloadBaseTransportHeader && p.Offset == 2 && p.Len == 2:
		return "dport"
	}
	return fmt.Sprintf("@base%d,%d,%d", p.Base, 8*p.Offset, 8*p.Len)
}

// maskText notes the length of a mask where it is that of a prefix.
func maskText(field string, mask []byte) string {
	bits := 0
	for i := range 8 * len(mask) {
		if mask[i/8]&(0x80>>(i%8)) == 0 {
			break
		}
		bits++
	}
	return fmt.Sprintf("%s/%d", field, bits)
}

func compareText(field string, c *expr.Cmp) string {
	signs := map[expr.CmpOp]string{
		expr.CmpOpEq: "", expr.CmpOpNeq: "!= ", expr.CmpOpLt: "< ", expr.CmpOpLte: "<= ", expr.CmpOpGt: "> ",
		expr.CmpOpGte: ">= ",
	}
	name, bits, masked := strings.Cut(field, "/")
	value := fmt.Sprintf("0x%x", c.Data)
	switch {
	case strings.HasSuffix(name, "ifname"):
		value = `"` + string(bytes.TrimRight(c.Data, "\x00")) + `"`
	case name == "ip saddr" || name == "ip daddr":
		var raw [4]byte
		copy(raw[:], c.Data)
		value = netip.AddrFrom4(raw).String()
	case (name == "ip protocol" || name == "meta l4proto") && len(c.Data) > 0:
		value = protocolText(c.Data[0])
	case len(c.Data) == 1:
		value = fmt.Sprint(c.Data[0])
	case len(c.Data) == 2 && name == "dport":
		value = fmt.Sprint(int(c.Data[0])<<8 | int(c.Data[1]))
	}
	if masked {
		value += "/" + bits
	}
	return name + " " + signs[c.Op] + value
}

func protocolText(p byte) string {
	switch p {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_TCP:
		return "tcp"
	}
	return fmt.Sprint(p)
}

func natText(n *expr.NAT) string {
	if n.Type == expr.NATTypeDestNAT {
		return "dnat"
	}
	return "snat"
}

func verdictText(v *expr.Verdict) string {
	switch v.Kind {
	case expr.VerdictDrop:
		return "drop"
	case expr.VerdictAccept:
		return "accept"
	case expr.VerdictReturn:
		return "return"
	case expr.VerdictJump:
		return "jump " + v.Chain
	case expr.VerdictGoto:
		return "goto " + v.Chain
	}
	return "continue"
}
