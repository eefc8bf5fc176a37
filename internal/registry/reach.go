package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// ErrLocal refuses an address of this machine or of its cloud.
var ErrLocal = errors.New("registries are not asked at addresses of this machine, of its link or of its cloud's metadata; if it is meant, name it with -local-registry HOST:PORT")

// metadata services that are neither loopback nor link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

// nat64 is the well-known prefix under which an IPv4 address is reached over IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// local reports whether a connection to an address would end on this machine, its
// link, a group or a metadata service.
func local(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a.Is4() && a.As4()[0] == 0 || slices.Contains(metadata, a)
}

// Transport is the way to registries for a process on the host's network: whatever a
// registry says (its name's addresses, redirects, the realm of its tokens), nothing
// local is asked. allowed are the registries that are meant all the same, HOST or
// HOST:PORT as references name them. Proxies of the environment may be local.
func Transport(allowed ...string) *http.Transport {
	proxies := httpproxy.FromEnvironment()
	r := reach{allowed: slices.Concat(allowed, proxyHosts(proxies.HTTPProxy, proxies.HTTPSProxy)), dialer: net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = r.dial
	usual := t.Proxy
	t.Proxy = func(req *http.Request) (*url.URL, error) {
		// What goes through a proxy is not seen by dial.
		if a, err := netip.ParseAddr(req.URL.Hostname()); err == nil && local(a) && !r.meant(req.URL.Host) {
			return nil, fmt.Errorf("%s: %w", req.URL.Host, ErrLocal)
		}
		return usual(req)
	}
	return t
}

// proxyHosts are HOST:PORT of addresses of proxies.
func proxyHosts(proxies ...string) (out []string) {
	for _, p := range proxies {
		if u, err := url.Parse(p); err == nil && u.Host != "" {
			out = append(out, u.Host)
		} else if p != "" {
			out = append(out, p)
		}
	}
	return out
}

type reach struct {
	allowed []string
	dialer  net.Dialer
}

func (r *reach) meant(address string) bool {
	if slices.Contains(r.allowed, address) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	return err == nil && slices.Contains(r.allowed, host)
}

// dial refuses after the name was resolved, at every address that is tried.
func (r *reach) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := r.dialer
	if !r.meant(address) {
		d.ControlContext = func(_ context.Context, _, to string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(to)
			if err != nil {
				return fmt.Errorf("address %s: %w", to, err)
			}
			if local(a.Addr()) {
				return fmt.Errorf("%s is %s: %w", address, a.Addr(), ErrLocal)
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, address)
}
