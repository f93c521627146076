//go:build defects

package kernel

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nemesh/nemesh/overlay/plan"
)

// AnswerMisses answers the kernel's requests for neighbours on the overlay's devices until ctx ends
// (RTM_GETNEIGH, which the sysctl app_solicit switches on). The answers come from the plan; the entries age.
func AnswerMisses(ctx context.Context, log *slog.Logger, full func() plan.State) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NEIGH)
	if err != nil {
		log.Error("cannot hear the kernel's questions for neighbours", "err", err)
		return
	}
	defer socket.Close()
	_ = socket.SetReceiveTimeout(&unix.Timeval{Usec: 200000})
	for ctx.Err() == nil {
		messages, _, err := socket.Receive()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if err != nil {
			log.Error("lost the kernel's questions for neighbours", "err", err)
			return
		}
		for _, m := range messages {
			if m.Header.Type != unix.RTM_GETNEIGH {
				continue
			}
			if asked, err := netlink.NeighDeserialize(m.Data); err == nil {
				answer(log, full(), asked)
			}
		}
	}
}

func answer(log *slog.Logger, full plan.State, asked *netlink.Neigh) {
	ip, ok := netip.AddrFromSlice(asked.IP)
	if !ok {
		return
	}
	n, ok := plan.Resolve(full, ip.Unmap())
	if !ok {
		return
	}
	link, err := netlink.LinkByName(n.Link)
	if err != nil || link.Attrs().Index != asked.LinkIndex {
		return
	}
	entry := neighbourEntry(asked.LinkIndex, n)
	entry.State = netlink.NUD_REACHABLE
	if err := netlink.NeighSet(entry); err != nil {
		log.Error("cannot answer for a neighbour", "ip", ip, "err", err)
		return
	}
	log.Info("answered for a neighbour", "ip", ip, "mac", n.MAC)
}
