package agent

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/nemesh/nemesh/overlay/defect"
)

// dialEtcd opens a client that notices a silent endpoint within the time-out. The kernel closes a connection
// whose data is not acknowledged (TCP_USER_TIMEOUT, tcp(7)), and a new attempt to connect follows as fast. A
// stopped server needs gRPC's keepalive, because the kernel acknowledges data for it. That takes ten seconds
// or more.
func dialEtcd(o Options) (*clientv3.Client, error) {
	dialer := &net.Dialer{
		Timeout: o.EtcdTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: max(time.Second, o.EtcdTimeout), Interval: time.Second, Count: 3,
		},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var set error
			err := raw.Control(func(fd uintptr) {
				set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
					int(o.EtcdTimeout.Milliseconds()))
			})
			if err == nil {
				err = set
			}
			return err
		},
	}
	config := clientv3.Config{
		Endpoints: o.EtcdEndpoints, DialTimeout: o.EtcdTimeout,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: o.EtcdTimeout,
		Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", addr)
			}),
			grpc.WithConnectParams(grpc.ConnectParams{
				MinConnectTimeout: o.EtcdTimeout,
				Backoff: backoff.Config{
					BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: o.EtcdTimeout,
				},
			}),
		},
	}
	if o.EtcdCAFile != "" || o.EtcdCertFile != "" {
		tls, err := tlsConfig(o)
		if err != nil {
			return nil, fmt.Errorf("load the certificates for etcd: %w", err)
		}
		config.TLS = tls
		// Like etcd's client, which looks at the first endpoint: those of http:// are spoken to without TLS.
		plain := len(o.EtcdEndpoints) > 0 && strings.HasPrefix(o.EtcdEndpoints[0], "http://")
		if o.EtcdCAFile != "" && !plain && !o.Defects.Has(defect.CertificatesOnce) {
			config.DialOptions = append(config.DialOptions,
				grpc.WithTransportCredentials(newCurrentRoots(tls, o.EtcdCAFile)))
		}
	}
	// New would log in, and fail while etcd is away. With a token it does not; etcd refuses this one when it is
	// used first, and then the client logs in.
	login := o.EtcdUsername != "" && o.EtcdPassword != ""
	if login {
		config.Token = "none yet"
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("open a client of etcd: %w", err)
	}
	if login {
		client.Token, client.Username, client.Password = "", o.EtcdUsername, o.EtcdPassword
	}
	return client, nil
}
