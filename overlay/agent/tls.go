package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc/credentials"

	"github.com/nemesh/nemesh/overlay/defect"
)

// tlsConfig has the client certificate read again from disk at each handshake, as etcd's package does.
func tlsConfig(o Options) (*tls.Config, error) {
	config, err := transport.TLSInfo{CertFile: o.EtcdCertFile, KeyFile: o.EtcdKeyFile}.ClientConfig()
	if err != nil || o.EtcdCAFile == "" {
		return config, err
	}
	if o.Defects.Has(defect.CertificatesOnce) {
		return frozen(config, o)
	}
	config.RootCAs, err = authorities(o.EtcdCAFile)
	return config, err
}

// currentRoots are credentials that read the authorities again from disk at each handshake, so that one that
// is replaced needs no restart (flannel#829). A hook of crypto/tls would not do: it is not told which name
// the connection was made under when that is an address.
type currentRoots struct {
	credentials.TransportCredentials
	config *tls.Config
	file   string
}

func newCurrentRoots(config *tls.Config, file string) currentRoots {
	return currentRoots{credentials.NewTLS(config), config, file}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c currentRoots) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	roots, err := authorities(c.file)
	if err != nil {
		return nil, nil, err
	}
	config := c.config.Clone()
	config.RootCAs = roots
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c currentRoots) Clone() credentials.TransportCredentials {
	return newCurrentRoots(c.config, c.file)
}

func authorities(path string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the authorities that sign etcd's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s holds no certificate in PEM format", path)
	}
	return pool, nil
}

// frozen reads everything now and never again, as flannel does. Only a defect wants it.
func frozen(config *tls.Config, o Options) (*tls.Config, error) {
	roots, err := authorities(o.EtcdCAFile)
	if err != nil {
		return nil, err
	}
	config.RootCAs, config.GetClientCertificate = roots, nil
	if o.EtcdCertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.EtcdCertFile, o.EtcdKeyFile)
		if err != nil {
			return nil, fmt.Errorf("load the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
