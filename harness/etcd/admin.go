package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RaiseNoSpace raises the alarm NOSPACE, as an exceeded space quota does. Until LowerAlarms, etcd refuses
// requests that take space (etcd's maintenance guide, "Space quota"). The client library has no call for it,
// so the request is sent by gRPC.
func (m *Member) RaiseNoSpace(ctx context.Context) error {
	client, err := m.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	status, err := m.Status(ctx)
	if err != nil {
		return err
	}
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil {
		return fmt.Errorf("raise the alarm NOSPACE: %w", err)
	}
	return nil
}

// LowerAlarms disarms every alarm.
func (m *Member) LowerAlarms(ctx context.Context) error {
	client, err := m.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("lower etcd's alarms: %w", err)
	}
	return nil
}

// EnableAuth switches on etcd's authentication. The harness is root; agents may read and write below prefix,
// and nothing else. It needs an Authority. If authentication is on already, EnableAuth only gives the
// permission back.
func (m *Member) EnableAuth(ctx context.Context, prefix string) error {
	if m.opts.Authority == nil {
		return errors.New("etcd tells its clients apart by their certificates: give it an authority first")
	}
	client, err := m.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	user := func(name string) error {
		_, err := client.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true})
		return unless(err, rpctypes.ErrUserAlreadyExist)
	}
	role := func(name string) error {
		_, err := client.RoleAdd(ctx, name)
		return unless(err, rpctypes.ErrRoleAlreadyExist)
	}
	grant := func(name string) error {
		_, err := client.UserGrantRole(ctx, name, name)
		return err
	}
	if err := errors.Join(user(RootUser), role(RootUser), grant(RootUser), user(AgentUser), role(AgentUser),
		grant(AgentUser)); err != nil {
		return fmt.Errorf("make etcd's users: %w", err)
	}
	if err := permit(ctx, client, prefix, clientv3.PermReadWrite); err != nil {
		return err
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		return fmt.Errorf("enable authentication: %w", err)
	}
	return nil
}

func unless(err error, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

func permit(ctx context.Context, client *clientv3.Client, prefix string, how authpb.Permission_Type) error {
	_, err := client.RoleGrantPermission(ctx, AgentUser, prefix, clientv3.GetPrefixRangeEnd(prefix),
		clientv3.PermissionType(how))
	if err != nil {
		return fmt.Errorf("let agents at %s: %w", prefix, err)
	}
	return nil
}

// SetPermission says what agents may do below prefix: both, read only, or nothing.
func (m *Member) SetPermission(ctx context.Context, prefix string, read, write bool) error {
	client, err := m.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	switch {
	case read && write:
		return permit(ctx, client, prefix, clientv3.PermReadWrite)
	case read:
		return permit(ctx, client, prefix, clientv3.PermRead)
	}
	_, err = client.RoleRevokePermission(ctx, AgentUser, prefix, clientv3.GetPrefixRangeEnd(prefix))
	if err = unless(err, rpctypes.ErrPermissionNotGranted); err != nil {
		return fmt.Errorf("keep agents from %s: %w", prefix, err)
	}
	return nil
}
