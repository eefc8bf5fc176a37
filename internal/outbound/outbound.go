package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// ErrLocal is in every refusal.
var ErrLocal = errors.New("refit connects to no such address that a cluster object or another server named")

// RefusedError says that a connection was refused.
type RefusedError struct {
	// Server as it was named, HOST:PORT.
	Server string
	// Address that the name resolves to, and its kind.
	Address netip.Addr
	Kind    string
	// Setting that would allow the server.
	Setting string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("connection to %s refused: %s is a %s address, and %s; if the server is meant, allow it with %s", e.Server, e.Address, e.Kind, ErrLocal, fmt.Sprintf(e.Setting, e.Server))
}

// Is makes every refusal an ErrLocal.
func (e *RefusedError) Is(err error) bool { return err == ErrLocal }

// metadata are the addresses of metadata services that are neither loopback nor link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

// nat64 is the well-known prefix under which an IPv4 address is reached over IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// refusedKind is the kind of an address that is refused, "" for all others.
func refusedKind(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case a == netip.AddrFrom4([4]byte{169, 254, 169, 254}) || slices.Contains(metadata, a):
		return "cloud metadata"
	case a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return "unspecified"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "multicast or broadcast"
	}
	return ""
}

// Settings that allow a server: arguments of the controller, and a field of the agents'
// configuration.
const (
	RegistryFlag  = "-local-registry=%s"
	ServerFlag    = "-local-server=%s"
	AgentRegistry = "localRegistries: [%q] in /etc/refit/agent.yaml"
)

// Guard refuses connections. A nil one allows no server, and names ServerFlag in its errors.
// Safe for concurrent use.
type Guard struct {
	setting string
	allowed []string
	proxies []string
	dialer  net.Dialer
}

// New makes a guard. setting is used in RefusedError, with %s for the server; allowed are
// servers as HOST or HOST:PORT.
func New(setting string, allowed ...string) *Guard {
	env := httpproxy.FromEnvironment()
	return &Guard{setting: setting, allowed: allowed, proxies: proxyServers(env.HTTPProxy, env.HTTPSProxy), dialer: net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}}
}

// Transport is Go's default transport with the guard.
func (g *Guard) Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext, t.Proxy = g.DialContext, g.Proxy
	return t
}

// Proxy is http.ProxyFromEnvironment, except for refused addresses.
func (g *Guard) Proxy(req *http.Request) (*url.URL, error) {
	if err := g.checkURL(req.URL); err != nil {
		return nil, err
	}
	return http.ProxyFromEnvironment(req)
}

// checkURL refuses an address in a URL: behind a proxy, DialContext does not see it.
func (g *Guard) checkURL(u *url.URL) error {
	if g == nil {
		g = New(ServerFlag)
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // it is a name
	}
	server := hostPort(u)
	if k := refusedKind(a); k != "" && !namesServer(g.allowed, server) {
		return &RefusedError{server, a, k, g.setting}
	}
	return nil
}

// DialContext checks every address that it tries, after the name was resolved.
func (g *Guard) DialContext(ctx context.Context, network, server string) (net.Conn, error) {
	if g == nil {
		g = New(ServerFlag)
	}
	d := g.dialer
	if !namesServer(g.allowed, server) && !namesServer(g.proxies, server) {
		d.ControlContext = func(_ context.Context, _, to string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(to)
			if err != nil {
				return fmt.Errorf("address %s: %w", to, err)
			}
			if k := refusedKind(a.Addr()); k != "" {
				return &RefusedError{server, a.Addr(), k, g.setting}
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, server)
}

// namesServer reports whether a list has HOST:PORT, or its HOST for all ports.
func namesServer(list []string, server string) bool {
	host, _, err := net.SplitHostPort(server)
	return slices.Contains(list, server) || err == nil && slices.Contains(list, host)
}

// proxyServers are HOST:PORT of the URLs of proxies; such a URL may have no scheme.
func proxyServers(proxies ...string) (out []string) {
	for _, p := range proxies {
		if p != "" && !strings.Contains(p, "://") {
			p = "http://" + p
		}
		if u, err := url.Parse(p); err == nil && u.Host != "" {
			out = append(out, hostPort(u))
		}
	}
	return out
}

var ports = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
