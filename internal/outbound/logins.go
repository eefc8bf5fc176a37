package outbound

import (
	"fmt"
	"net/http"
	"strings"
)

// KeepLogins is a transport below a client of registries. Cloud registries redirect requests for blobs
// to a server of another name: it gets no login, answers no question about one, and gets no form with a
// token. nil is the default transport.
func KeepLogins(over http.RoundTripper) http.RoundTripper {
	if over == nil {
		over = http.DefaultTransport
	}
	return keepLogins{over}
}

type keepLogins struct{ inner http.RoundTripper }

// ErrLoginRedirected is in the refusal to send a form with a token to another server.
var ErrLoginRedirected = fmt.Errorf("the server redirects the request for a token to another server, which refit does not follow")

// secretHeaders have logins, or what a server gave to one client.
var secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Registry-Auth"}

// RoundTrip changes requests after a redirect to another server only.
func (k keepLogins) RoundTrip(req *http.Request) (*http.Response, error) {
	first := firstRequest(req)
	if first == req || origin(first) == origin(req) {
		return k.inner.RoundTrip(req)
	}
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		if req.Body != nil {
			_ = req.Body.Close() // it was not read
		}
		return nil, ErrLoginRedirected
	}
	clean := req.Clone(req.Context())
	for _, h := range secretHeaders {
		clean.Header.Del(h)
	}
	clean.URL.User = nil
	resp, err := k.inner.RoundTrip(clean)
	if err == nil {
		// The client would answer it with the login of the first server.
		resp.Header.Del("Www-Authenticate")
	}
	return resp, err
}

// firstRequest is the one that was made before any redirect.
func firstRequest(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

// origin is scheme, host and port.
func origin(req *http.Request) string { return req.URL.Scheme + "://" + hostPort(req.URL) }
