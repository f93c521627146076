package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// groups are the kernel's multicast groups that report what a plan is about (linux/rtnetlink.h).
var groups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_NETCONF,
	unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_NETCONF,
}

// nftablesGroup is NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h.
const nftablesGroup = 7

// subscribe has heard called, from two goroutines, with what each change in the kernel concerns. A full
// socket, which loses events, concerns everything.
func (r *Reconciler) subscribe(ctx context.Context) error {
	route, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return fmt.Errorf("subscribe to the kernel's links, addresses, routes and neighbours: %w", err)
	}
	go receive(ctx, route, r.opts.Log, func(m syscall.NetlinkMessage) concern {
		return r.expected.Load().of(m)
	}, r.heard)
	filter, err := nl.Subscribe(unix.NETLINK_NETFILTER, nftablesGroup)
	if err != nil {
		return fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	go receive(ctx, filter, r.opts.Log, func(syscall.NetlinkMessage) concern {
		return concern{parts: partRules}
	}, r.heard)
	return nil
}

// receive passes on what events concern until ctx ends.
func receive(
	ctx context.Context,
	socket *nl.NetlinkSocket,
	log *slog.Logger,
	of func(syscall.NetlinkMessage) concern,
	heard func(concern),
) {
	defer socket.Close()
	// Receiving blocks, so it looks up now and then to see whether it should end.
	if err := socket.SetReceiveTimeout(&unix.Timeval{Sec: 1}); err != nil {
		log.Warn("cannot bound reads of kernel events", "err", err)
	}
	for ctx.Err() == nil {
		messages, _, err := socket.Receive()
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			heard(concern{parts: allParts, uplink: true})
			continue
		case err != nil:
			log.Error("lost the kernel's events; comparing by the timer only", "err", err)
			return
		}
		var all concern
		for _, m := range messages {
			all = all.and(of(m))
		}
		heard(all)
	}
}
