package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/nemesh/nemesh/harness/node"
)

// NewCluster prepares the members of one cluster, one on each machine. It ignores Options.Machine.
func NewCluster(machines []*node.Machine, opts Options) []*Member {
	var all []*Member
	for _, machine := range machines {
		opts.Machine = machine
		all = append(all, New(opts))
	}
	for _, m := range all {
		m.all = all
	}
	return all
}

// StartAll starts the members that do not run, all at the same time: none is ready without a quorum.
func StartAll(ctx context.Context, members []*Member) error {
	starting, startCtx := errgroup.WithContext(ctx)
	for _, m := range members {
		starting.Go(func() error {
			if err := m.Start(startCtx); err != nil {
				return fmt.Errorf("member %s: %w", m.opts.Machine.Name(), err)
			}
			return nil
		})
	}
	return starting.Wait()
}

// Members lists the members of the cluster, including this one.
func (m *Member) Members() []*Member {
	if m.all == nil {
		return []*Member{m}
	}
	return m.all
}

// Leader returns the leader of the cluster.
func (m *Member) Leader(ctx context.Context) (*Member, error) {
	errs := []error{errors.New("no member leads etcd")}
	for _, candidate := range m.Members() {
		if !candidate.Running() {
			continue
		}
		status, err := candidate.Status(ctx)
		if err == nil && status.Leader == status.Header.MemberId {
			return candidate, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Status returns the status of this member.
func (m *Member) Status(ctx context.Context) (*clientv3.StatusResponse, error) {
	client, err := m.client(ctx, []*Member{m})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	status, err := client.Status(ctx, m.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", m.opts.Machine.Name(), err)
	}
	return status, nil
}

// MoveLeader makes another member the leader. This member must be the leader.
func (m *Member) MoveLeader(ctx context.Context, to *Member) error {
	status, err := to.Status(ctx)
	if err != nil {
		return err
	}
	client, err := m.client(ctx, []*Member{m})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.MoveLeader(ctx, status.Header.MemberId); err != nil {
		return fmt.Errorf("make %s the leader: %w", to.opts.Machine.Name(), err)
	}
	return nil
}
