package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/nemesh/nemesh/harness/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Enter()
	os.Exit(m.Run())
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// authority signs certificates.
type authority struct {
	tb   testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	a := &authority{tb: tb, dir: tb.TempDir()}
	a.cert, a.key = a.sign("authority", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, time.Hour)
	return a
}

// path is where a certificate (or key) is written.
func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// sign writes name.crt and name.key.
func (a *authority) sign(
	name string,
	c *x509.Certificate,
	life time.Duration,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.tb, err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(life)
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	must(a.tb, err)
	raw, err := x509.MarshalECPrivateKey(key)
	must(a.tb, err)
	for file, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: raw},
	} {
		must(a.tb, os.WriteFile(a.path(name+file), pem.EncodeToMemory(block), 0o600))
	}
	made, err := x509.ParseCertificate(der)
	must(a.tb, err)
	return made, key
}

// secureEtcd runs etcd with TLS, and with client certificates asked for if mutual.
func secureEtcd(tb testing.TB, a *authority, port string, mutual bool) string {
	tb.Helper()
	a.sign("server", &x509.Certificate{}, time.Hour)
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.UnsafeNoFsync = tb.TempDir(), "panic", true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	client := url.URL{Scheme: "https", Host: "127.0.0.1:" + port}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:1" + port}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: a.path("server.crt"), KeyFile: a.path("server.key")}
	if mutual { // an authority makes etcd ask for certificates, whatever ClientCertAuth says
		cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = a.path("authority.crt"), true
	}
	e, err := embed.StartEtcd(cfg)
	must(tb, err)
	tb.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return client.String()
}

// reads dials as the options say and reads once.
func reads(tb testing.TB, o Options) error {
	tb.Helper()
	o.EtcdTimeout = 2 * time.Second
	c, err := dialEtcd(o)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Second)
	defer cancel()
	_, err = c.Get(ctx, "x")
	return err
}

func TestAuthorityAloneMeansTLS(t *testing.T) {
	a := newAuthority(t)
	endpoint := secureEtcd(t, a, "3379", false)
	must(t, reads(t, Options{EtcdEndpoints: []string{endpoint}, EtcdCAFile: a.path("authority.crt")}))
	other := newAuthority(t)
	if reads(t, Options{EtcdEndpoints: []string{endpoint}, EtcdCAFile: other.path("authority.crt")}) == nil {
		t.Error("a server of another authority was believed")
	}
}

func TestClientCertificateIsReadAgainFromDisk(t *testing.T) {
	a := newAuthority(t)
	endpoint := secureEtcd(t, a, "3380", true)
	o := Options{
		EtcdEndpoints: []string{endpoint}, EtcdCAFile: a.path("authority.crt"),
		EtcdCertFile: a.path("client.crt"), EtcdKeyFile: a.path("client.key"), EtcdTimeout: 2 * time.Second,
	}
	if reads(t, Options{EtcdEndpoints: o.EtcdEndpoints, EtcdCAFile: o.EtcdCAFile}) == nil {
		t.Fatal("the server takes clients without a certificate")
	}
	a.sign("client", &x509.Certificate{}, -time.Minute) // expired
	c, err := dialEtcd(o)
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Get(ctx, "x"); err == nil {
		t.Fatal("an expired certificate was taken")
	}
	a.sign("client", &x509.Certificate{}, time.Hour) // replaced on disk, under the running client
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, err = c.Get(ctx, "x"); err != nil && ctx.Err() == nil; _, err = c.Get(ctx, "x") {
		t.Log(err)
	}
	must(t, err)
}

func TestAuthorityIsReadAgainFromDisk(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	endpoint := secureEtcd(t, a, "3381", false)
	file := filepath.Join(t.TempDir(), "ca.crt")
	place := func(from *authority) {
		raw, err := os.ReadFile(from.path("authority.crt"))
		must(t, err)
		must(t, os.WriteFile(file, raw, 0o600))
	}
	place(other)
	c, err := dialEtcd(
		Options{EtcdEndpoints: []string{endpoint}, EtcdCAFile: file, EtcdTimeout: 2 * time.Second},
	)
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Get(ctx, "x"); err == nil {
		t.Fatal("a server of another authority was believed")
	}
	place(a) // under the running client
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, err = c.Get(ctx, "x"); err != nil && ctx.Err() == nil; _, err = c.Get(ctx, "x") {
		t.Log(err)
	}
	must(t, err)
}

func TestCertificateOfAnotherHostIsRefused(t *testing.T) {
	a := newAuthority(t)
	endpoint := secureEtcd(t, a, "3382", false)
	endpoint = "https://localhost:" + endpoint[len("https://127.0.0.1:"):] // the certificate names 127.0.0.1
	if err := reads(
		t,
		Options{EtcdEndpoints: []string{endpoint}, EtcdCAFile: a.path("authority.crt")},
	); err == nil {
		t.Error("a certificate for another host was taken")
	}
}

func TestPasswordFromFile(t *testing.T) {
	a := newAuthority(t)
	endpoint := secureEtcd(t, a, "3383", false)
	plain := Options{
		EtcdEndpoints: []string{endpoint},
		EtcdCAFile:    a.path("authority.crt"),
		EtcdTimeout:   2 * time.Second,
	}
	c, err := dialEtcd(plain)
	must(t, err)
	defer c.Close()
	for _, role := range []string{"root", "agent"} {
		_, err := c.UserAdd(t.Context(), role, "secret of "+role)
		must(t, err)
	}
	_, err = c.UserGrantRole(t.Context(), "root", "root")
	must(t, err)
	_, err = c.RoleAdd(t.Context(), "all")
	must(t, err)
	_, err = c.RoleGrantPermission(
		t.Context(),
		"all",
		"\x00",
		"\x00",
		clientv3.PermissionType(clientv3.PermReadWrite),
	)
	must(t, err)
	_, err = c.UserGrantRole(t.Context(), "agent", "all")
	must(t, err)
	_, err = c.AuthEnable(t.Context())
	must(t, err)
	if reads(t, plain) == nil {
		t.Fatal("etcd takes everybody")
	}
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("secret of agent\n"), 0o600))
	o, err := ParseOptions([]string{
		"--etcd-endpoints=" + endpoint, "--etcd-cafile=" + plain.EtcdCAFile, "--etcd-username=agent",
		"--etcd-password-file=" + file,
	}, func(string) (string, bool) { return "", false }, io.Discard)
	must(t, err)
	must(t, reads(t, o))
}
