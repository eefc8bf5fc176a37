package hooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/outbound"
)

// maxAnswer is the size of the largest accepted answer.
const maxAnswer = MaxBody

// Extension is another runtime extension that refit calls with the same protocol.
type Extension struct {
	url    string
	client *http.Client

	mu sync.Mutex
	// names are its handlers by hook from the last discovery; nil before it.
	names map[string]string
}

// NewExtension returns a client for the extension at an https address whose certificate one of
// the given CAs (PEM) has signed. timeout bounds a call, servers restricts the connection.
func NewExtension(address string, ca []byte, timeout time.Duration, servers *outbound.Guard) (*Extension, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not an https address", address)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("there is no CA certificate in PEM: the extension's certificate cannot be checked")
	}
	transport := &http.Transport{DialContext: servers.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	return &Extension{url: strings.TrimSuffix(address, "/"), client: &http.Client{Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Ask sends a request. An error means that there is no answer, which is neither yes nor no nor
// done. Its text is constant while the cause is the same, and contains no part of a body.
func (e *Extension) Ask(ctx context.Context, h Hook, r Request) (Answer, error) {
	handler, err := e.handler(ctx, h)
	if err != nil {
		return Answer{}, err
	}
	body, err := h.Encode(r)
	if err != nil {
		return Answer{}, err
	}
	data, err := e.post(ctx, "/"+APIVersion+"/"+strings.ToLower(h.Name)+"/"+strings.ToLower(handler), body)
	if err != nil {
		e.forgetHandlers() // a replaced extension may have other handler names
		return Answer{}, err
	}
	return h.DecodeAnswer(data)
}

func (e *Extension) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, withoutDetails(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, errors.New("its answer ended early")
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers with HTTP %d", resp.StatusCode)
	case len(data) > maxAnswer:
		return nil, fmt.Errorf("its answer is larger than %d bytes", maxAnswer)
	}
	return data, nil
}

// handler returns the extension's name for the handler of a hook. It runs discovery once, and
// again after a failed call.
func (e *Extension) handler(ctx context.Context, h Hook) (string, error) {
	e.mu.Lock()
	names := e.names
	e.mu.Unlock()
	if names == nil {
		data, err := e.post(ctx, DiscoveryPath, []byte(`{"apiVersion":"`+APIVersion+`","kind":"DiscoveryRequest"}`))
		if err != nil {
			return "", err
		}
		if names, err = handlers(data); err != nil {
			return "", err
		}
		e.mu.Lock()
		e.names = names
		e.mu.Unlock()
	}
	if n := names[h.Name]; n != "" {
		return n, nil
	}
	return "", errors.New("it has no handler for " + h.Name)
}

func (e *Extension) forgetHandlers() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names = nil
}

// handlers decodes the answer to a discovery request.
func handlers(data []byte) (map[string]string, error) {
	var d struct {
		Kind     string `json:"kind"`
		Status   string `json:"status"`
		Handlers []struct {
			Name        string `json:"name"`
			RequestHook struct {
				APIVersion string `json:"apiVersion"`
				Hook       string `json:"hook"`
			} `json:"requestHook"`
		} `json:"handlers"`
	}
	if json.Unmarshal(data, &d) != nil || d.Kind != "DiscoveryResponse" || d.Status != success {
		return nil, errors.New("its answer to the discovery is not a DiscoveryResponse of " + APIVersion)
	}
	out := map[string]string{}
	for _, h := range d.Handlers {
		if h.RequestHook.APIVersion == APIVersion && label.MatchString(h.Name) {
			out[h.RequestHook.Hook] = h.Name
		}
	}
	return out, nil
}

// label matches a DNS label, which a handler's name must be.
var label = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)

// Close ends idle connections.
func (e *Extension) Close() { e.client.CloseIdleConnections() }

// withoutDetails returns the cause of an error without ports and times, which change.
func withoutDetails(err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var refused *outbound.RefusedError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &name):
		return errors.New("its certificate is not one that its CA bundle trusts for this name")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("it does not answer in time")
	}
	return errors.New("it cannot be reached")
}
