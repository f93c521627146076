package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

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

// subscribe returns a channel that is sent to after each change in the kernel that may concern a plan. An
// event says only that a comparison is due, so a full socket, which loses events, is one more event.
func subscribe(ctx context.Context, log *slog.Logger) (<-chan struct{}, error) {
	events := make(chan struct{}, 1)
	notify := func() {
		select {
		case events <- struct{}{}:
		default:
		}
	}
	route, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the kernel's links, addresses, routes and neighbours: %w", err)
	}
	go receive(ctx, route, log, notify)
	filter, err := nl.Subscribe(unix.NETLINK_NETFILTER, nftablesGroup)
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	go receive(ctx, filter, log, notify)
	return events, nil
}

// receive passes on events until ctx ends.
func receive(ctx context.Context, socket *nl.NetlinkSocket, log *slog.Logger, notify func()) {
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
			notify()
			continue
		case err != nil:
			log.Error("lost the kernel's events; comparing by the timer only", "err", err)
			return
		}
		for _, m := range messages {
			if m.Header.Type != unix.RTM_GETNEIGH { // a question to user space, not a change
				notify()
				break
			}
		}
	}
}
