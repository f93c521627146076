package follow

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/harness/observe"
)

// ruleTrace has nftables report what it decides about the marked packet in one namespace. The rule that
// switches the trace on stands in a table of its own that is gone when the trace is closed. Rules of the
// old iptables (ip_tables.ko) are not nftables' and are not seen.
type ruleTrace struct {
	place   string
	ns      netns.NsHandle
	table   *nftables.Table
	conn    *netlink.Conn
	outward func(netip.Addr) string
	done    sync.WaitGroup
}

// beforeAll is a priority before any table that filters or translates: iptables' raw table is at -300.
const beforeAll = -400

// innerMark is where the mark is in a packet in VXLAN, from the outer IP header on.
const innerMark = 20 + 8 + 8 + 14 + 20 + 8

// openRuleTrace starts a trace; it calls each with every decision. On the switch the frames are traced while
// they are bridged. directionOf tells by the outer source of a packet in VXLAN what is inside.
func openRuleTrace(
	place string,
	ns netns.NsHandle,
	mark [markLength]byte,
	directionOf func(netip.Addr) string,
	each func(RuleVerdict),
) (*ruleTrace, error) {
	t := &ruleTrace{place: place, ns: ns, outward: directionOf}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(ns)})
	if err != nil {
		return nil, fmt.Errorf("listen for nftables' trace in %s: %w", place, err)
	}
	t.conn = conn
	if err := conn.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for nftables' trace in %s: %w", place, err), conn.Close())
	}
	if err := t.addRules(mark); err != nil {
		return nil, errors.Join(fmt.Errorf("have nftables trace the packet in %s: %w", place, err), conn.Close())
	}
	t.done.Go(func() { t.read(each) })
	return t, nil
}

func (t *ruleTrace) addRules(mark [markLength]byte) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(t.ns)))
	if err != nil {
		return err
	}
	family, hooks := nftables.TableFamilyIPv4,
		[]*nftables.ChainHook{nftables.ChainHookPrerouting, nftables.ChainHookOutput}
	if t.place == SwitchName {
		family, hooks = nftables.TableFamilyBridge, hooks[:1]
	}
	t.table = conn.AddTable(
		&nftables.Table{Name: "nemesh-trace-" + hex.EncodeToString(mark[:4]), Family: family},
	)
	for _, hook := range hooks {
		chain := conn.AddChain(&nftables.Chain{
			Name: fmt.Sprintf("hook%d", *hook), Table: t.table, Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityRef(beforeAll),
		})
		for _, where := range []*expr.Payload{
			{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 8, Len: markLength},
			{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: innerMark, Len: markLength},
		} {
			conn.AddRule(&nftables.Rule{Table: t.table, Chain: chain, Exprs: []expr.Any{
				where,
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mark[:]},
				&expr.Immediate{Register: 1, Data: []byte{1}},
				&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1},
			}})
		}
	}
	return conn.Flush()
}

func (t *ruleTrace) read(each func(RuleVerdict)) {
	directions := map[uint32]string{} // by the id of the packet
	for {
		messages, err := t.conn.Receive()
		if err != nil {
			return // read to its end; a trace of one packet cannot overrun the socket
		}
		for _, m := range messages {
			if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
				continue
			}
			v, id, outer, err := parseTrace(m.Data)
			if err != nil || v.Table == t.table.Name {
				continue
			}
			switch {
			case outer.isValid() && outer.inTunnel:
				directions[id] = t.outward(outer.src)
			case outer.isValid():
				directions[id] = outer.direction
			}
			v.Place, v.Direction = t.place, directions[id]
			each(v)
		}
	}
}

// header is what a trace message shows of the packet itself.
type header struct {
	src       netip.Addr
	inTunnel  bool
	direction string
}

func (h header) isValid() bool { return h.src.IsValid() }

// parseTrace reads an NFT_MSG_TRACE (linux/netfilter/nf_tables.h, nft_trace_attributes).
func parseTrace(b []byte) (v RuleVerdict, id uint32, h header, err error) {
	const genericHeader = 4 // struct nfgenmsg
	if len(b) < genericHeader {
		return v, 0, h, errors.New("a trace message without its header")
	}
	v.Family = observe.FamilyName(b[0])
	attributes, err := netlink.NewAttributeDecoder(b[genericHeader:])
	if err != nil {
		return v, 0, h, fmt.Errorf("read a trace message: %w", err)
	}
	attributes.ByteOrder = binary.BigEndian
	var kind, policy uint32
	var verdict int32
	var network, transport []byte
	for attributes.Next() {
		switch attributes.Type() {
		case unix.NFTA_TRACE_TABLE:
			v.Table = attributes.String()
		case unix.NFTA_TRACE_CHAIN:
			v.Chain = attributes.String()
		case unix.NFTA_TRACE_RULE_HANDLE:
			v.Handle = attributes.Uint64()
		case unix.NFTA_TRACE_TYPE:
			kind = attributes.Uint32()
		case unix.NFTA_TRACE_ID:
			id = attributes.Uint32()
		case unix.NFTA_TRACE_POLICY:
			policy = attributes.Uint32()
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = attributes.Bytes()
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = attributes.Bytes()
		case unix.NFTA_TRACE_VERDICT:
			attributes.Nested(func(nested *netlink.AttributeDecoder) error {
				for nested.Next() {
					if nested.Type() == unix.NFTA_VERDICT_CODE {
						verdict = int32(nested.Uint32())
					}
				}
				return nested.Err()
			})
		}
	}
	const drop = 0 // NF_DROP
	switch kind {
	case unix.NFT_TRACETYPE_RULE:
		v.Drop = verdict == drop
	case unix.NFT_TRACETYPE_POLICY:
		v.Drop, v.Handle = policy == drop, 0
	}
	return v, id, readHeader(network, transport), attributes.Err()
}

// readHeader reads the first bytes of a packet, of which the kernel gives what is enough for this.
func readHeader(network, transport []byte) header {
	const ipv4, sourceAt, protocolAt = 20, 12, 9
	if len(network) < ipv4 || len(transport) == 0 {
		return header{}
	}
	src, _ := netip.AddrFromSlice(network[sourceAt : sourceAt+4])
	h := header{src: src, inTunnel: network[protocolAt] == unix.IPPROTO_UDP, direction: Request}
	if transport[0] == 0 { // echo reply
		h.direction = Reply
	}
	return h
}

// close reads what is queued, and takes the table away.
func (t *ruleTrace) close() error {
	err := t.conn.SetReadDeadline(time.Now().Add(settle))
	t.done.Wait()
	err = errors.Join(err, t.conn.Close())
	conn, errNew := nftables.New(nftables.WithNetNSFd(int(t.ns)))
	if errNew != nil {
		return errors.Join(err, errNew)
	}
	conn.DelTable(t.table)
	if errFlush := conn.Flush(); errFlush != nil {
		return errors.Join(err, fmt.Errorf("take the trace's table away in %s: %w", t.place, errFlush))
	}
	return err
}
