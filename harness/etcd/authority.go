package etcd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/nemesh/nemesh/harness/node"
)

// Files of a machine for TLS with etcd, on its disk.
const (
	TLSDir   = "/var/lib/etcd-tls"
	CAFile   = TLSDir + "/ca.pem"
	CertFile = TLSDir + "/cert.pem"
	KeyFile  = TLSDir + "/key.pem"
)

// Users of etcd. etcd takes the common name of a client's certificate as its user.
const (
	RootUser  = "root"
	AgentUser = "overlay"
)

// Authority is a certificate authority. It is made at run time and lives in memory; only one world trusts
// it.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "nemesh authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return &Authority{cert, key}, nil
}

func serial() *big.Int {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails (crypto/rand)
	return new(big.Int).SetBytes(raw)
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Certificate describes what an authority is to sign.
type Certificate struct {
	// CommonName is the user or server, Addr the address of a server.
	CommonName string
	Addr       netip.Addr
	// Expired makes a certificate that expired a minute ago.
	Expired bool
}

// Issue makes a key and signs a certificate for it, for servers and for clients. Both are PEM.
func (a *Authority) Issue(c Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", c.CommonName, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: c.CommonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if c.Expired {
		template.NotAfter = time.Now().Add(-time.Minute)
	}
	if c.Addr.IsValid() {
		template.IPAddresses = []net.IP{c.Addr.AsSlice()}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign a certificate for %s: %w", c.CommonName, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the key of %s: %w", c.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Equip writes a new certificate and key to a machine's disk, as a rotation does. It also writes the
// authority's own certificate, unless keepCA is true: then the machine trusts whom it trusted before.
func (a *Authority) Equip(m *node.Machine, c Certificate, keepCA bool) error {
	cert, key, err := a.Issue(c)
	if err != nil {
		return err
	}
	files := map[string][]byte{CertFile: cert, KeyFile: key}
	if !keepCA {
		files[CAFile] = a.PEM()
	}
	return WriteTLS(m, files)
}

// WriteTLS writes files to a machine's TLS folder. Each is replaced as a whole.
func WriteTLS(m *node.Machine, files map[string][]byte) error {
	if err := os.MkdirAll(m.Path(TLSDir), 0o700); err != nil {
		return fmt.Errorf("make room for certificates on %s: %w", m.Name(), err)
	}
	for path, data := range files {
		temp := m.Path(path) + ".new"
		err := os.WriteFile(temp, data, 0o600)
		if err = errors.Join(err, os.Rename(temp, m.Path(path))); err != nil {
			return fmt.Errorf("write %s on %s: %w", path, m.Name(), err)
		}
	}
	return nil
}

// ReadTLS returns the files of a machine's TLS folder. WriteTLS puts them back.
func ReadTLS(m *node.Machine) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, path := range []string{CAFile, CertFile, KeyFile} {
		raw, err := os.ReadFile(m.Path(path))
		if err != nil {
			return nil, fmt.Errorf("read %s on %s: %w", filepath.Base(path), m.Name(), err)
		}
		files[path] = raw
	}
	return files, nil
}

// ClientTLS returns the TLS configuration of a client on a machine: with the files of the machine's TLS
// folder, and with the same checks as an agent.
func ClientTLS(m *node.Machine) (*tls.Config, error) {
	files, err := ReadTLS(m)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(files[CertFile], files[KeyFile])
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s: %w", m.Name(), err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bytes.TrimSpace(files[CAFile])) {
		return nil, fmt.Errorf("%s trusts no authority", m.Name())
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// rootTLS is the configuration of the harness's own clients. They are root and do not verify the server, so
// that they reach etcd whatever certificate a fault has given it.
func (a *Authority) rootTLS() (*tls.Config, error) {
	cert, key, err := a.Issue(Certificate{CommonName: RootUser})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the harness's own certificate: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // a server with a wrong certificate is what some scenarios make
	}, nil
}
