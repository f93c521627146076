package observe

import (
	"testing"

	"github.com/google/nftables/expr"
)

func TestRuleText(t *testing.T) {
	for want, exprs := range map[string][]expr.Any{
		`iifname "eth0" meta l4proto icmp drop`: {
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Register: 1, Data: []byte("eth0\x00\x00")},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{1}},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop},
		},
		"ip saddr != 172.16.0.0/16 jump other": {
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 2},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{172, 16}},
			&expr.Verdict{Kind: expr.VerdictJump, Chain: "other"},
		},
		"ip daddr 172.16.2.0/24 dport 8472 masquerade": {
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Mask: []byte{255, 255, 255, 0}},
			&expr.Cmp{Register: 1, Data: []byte{172, 16, 2, 0}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Register: 1, Data: []byte{0x21, 0x18}}, &expr.Masq{},
		},
		"[xt comment] [limit] REJECT": {
			&expr.Match{Name: "comment"}, &expr.Limit{}, &expr.Target{Name: "REJECT"},
		},
	} {
		if got := ruleText(exprs); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
