package outbound

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func TestKind(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1": "loopback", "127.8.9.1": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback", "64:ff9b::7f00:1": "loopback",
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified", "::ffff:0.0.0.0": "unspecified",
		"169.254.169.254": "cloud metadata", "::ffff:169.254.169.254": "cloud metadata", "64:ff9b::a9fe:a9fe": "cloud metadata",
		"fd00:ec2::254": "cloud metadata", "100.100.100.200": "cloud metadata", "168.63.129.16": "cloud metadata",
		"169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
		"224.0.0.1": "multicast or broadcast", "ff02::1": "multicast or broadcast", "255.255.255.255": "multicast or broadcast",
		"10.0.0.1": "", "192.168.1.1": "", "172.16.0.1": "", "1.1.1.1": "", "2001:db8::1": "", "fd00::1": "", "64:ff9b::101:101": "",
	} {
		if got := refusedKind(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// names answers every name with the addresses given, over UDP on loopback.
func names(t *testing.T, a [4]byte, aaaa [16]byte) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
			m.Response, m.Additionals = true, nil
			switch q.Type {
			case dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: a}}}
			case dnsmessage.TypeAAAA:
				m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: aaaa}}}
			default:
			}
			if out, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// victim counts connections to a listener on loopback.
func victim(t *testing.T) (port string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = http.ReadRequest(bufio.NewReader(c)) // an answer before the question is an error of the client
			_, _ = fmt.Fprint(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			c.Close()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, asked
}

// A name that resolves to this machine leads nowhere, also in IPv6's form of an IPv4
// address; allowed by its name it does.
func TestNameOfThisMachine(t *testing.T) {
	port, asked := victim(t)
	resolver := names(t, [4]byte{127, 0, 0, 1}, netip.MustParseAddr("::ffff:127.0.0.1").As16())
	get := func(g *Guard) error {
		g.dialer.Resolver = resolver
		over := g.Transport()
		over.Proxy = nil
		defer over.CloseIdleConnections()
		resp, err := (&http.Client{Transport: over}).Get("http://images.example:" + port + "/v2/")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	err := get(New(RegistryFlag))
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, ErrLocal) || asked.Load() != 0 {
		t.Fatalf("%d connections: %v", asked.Load(), err)
	}
	for _, word := range []string{"images.example:" + port, "127.0.0.1", "loopback", "-local-registry=images.example:" + port} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it does not say %q: %v", word, err)
		}
	}
	if err := get(New(RegistryFlag, "images.example:1", "other.example")); !errors.Is(err, ErrLocal) || asked.Load() != 0 {
		t.Errorf("another server is allowed, %d connections: %v", asked.Load(), err)
	}
	for _, allowed := range []string{"images.example", "images.example:" + port} {
		asked.Store(0)
		if err := get(New(RegistryFlag, allowed)); err != nil || asked.Load() == 0 {
			t.Errorf("%s is allowed, %d connections: %v", allowed, asked.Load(), err)
		}
	}
}

func TestNilGuardAllowsNothing(t *testing.T) {
	port, asked := victim(t)
	var g *Guard
	_, err := g.DialContext(t.Context(), "tcp", "localhost:"+port)
	if !errors.Is(err, ErrLocal) || asked.Load() != 0 || !strings.Contains(err.Error(), "-local-server=localhost:"+port) {
		t.Errorf("%d connections: %v", asked.Load(), err)
	}
	if _, err := g.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "[::1]"}}); !errors.Is(err, ErrLocal) {
		t.Error(err)
	}
}

// The administrator's proxy may be local; what is behind it may not be, and neither is
// the proxy a server that an object may name.
func TestProxyOfTheEnvironment(t *testing.T) {
	port, asked := victim(t)
	proxy := "127.0.0.1:" + port
	for _, value := range []string{"http://" + proxy, proxy} {
		t.Setenv("HTTPS_PROXY", value)
		t.Setenv("HTTP_PROXY", value)
		g := New(RegistryFlag)
		asked.Store(0)
		c, err := g.DialContext(t.Context(), "tcp", proxy)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		c.Close()
		for _, u := range []string{"http://" + proxy + "/x", "https://169.254.169.254/", "https://[::ffff:127.0.0.1]:2379/"} {
			req, err := http.NewRequest(http.MethodGet, u, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Proxy(req); !errors.Is(err, ErrLocal) {
				t.Errorf("%s: %v", u, err)
			}
		}
	}
	for text, want := range map[string]string{"http://proxy": "proxy:80", "https://proxy": "proxy:443", "socks5://proxy": "proxy:1080", "proxy:3128": "proxy:3128", "": ""} {
		if got := strings.Join(proxyServers(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
