package agent

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"
)

// The name under which a connection was made is not in it when that is an address: none is sent as SNI.
func TestCertificateOfAnotherAddressIsRefused(t *testing.T) {
	a := newAuthority(t)
	a.sign("server", &x509.Certificate{}, time.Hour) // names 127.0.0.1
	pair, err := tls.LoadX509KeyPair(a.path("server.crt"), a.path("server.key"))
	must(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"},
	})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	o := Options{EtcdCAFile: a.path("authority.crt")}
	for name, good := range map[string]bool{
		"127.0.0.1": true, "127.0.0.2": false, "::1": false, "localhost": false,
	} {
		config, err := tlsConfig(o)
		must(t, err)
		conn, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		_, _, err = newCurrentRoots(
			config,
			o.EtcdCAFile,
		).ClientHandshake(t.Context(), net.JoinHostPort(name, "1"), conn)
		_ = conn.Close()
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An agent with a password must start while etcd is away, like any other.
func TestClientWithAPasswordIsMadeWhileEtcdIsAway(t *testing.T) {
	c, err := dialEtcd(Options{
		EtcdEndpoints: []string{"http://127.0.0.1:9"}, EtcdUsername: "agent",
		EtcdPassword: "secret", EtcdTimeout: 100 * time.Millisecond,
	})
	must(t, err)
	must(t, c.Close())
}
