package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/nemesh/nemesh/overlay/defect"
)

// tlsConfig reads everything again from disk at each handshake: etcd's package does so for the client
// certificate, and the authorities are read here, so that one that is replaced needs no restart
// (flannel#829).
func tlsConfig(o Options) (*tls.Config, error) {
	config, err := transport.TLSInfo{CertFile: o.EtcdCertFile, KeyFile: o.EtcdKeyFile}.ClientConfig()
	if err != nil || o.EtcdCAFile == "" {
		return config, err
	}
	if _, err := authorities(o.EtcdCAFile); err != nil {
		return nil, err
	}
	if o.Defects.Has(defect.CertificatesOnce) {
		return frozen(config, o)
	}
	// crypto/tls takes its roots once only, so it is told to check nothing and the check is made here, the same
	// that it would make.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(s tls.ConnectionState) error {
		roots, err := authorities(o.EtcdCAFile)
		if err != nil {
			return err
		}
		between := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, DNSName: s.ServerName,
		})
		return err
	}
	return config, nil
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
