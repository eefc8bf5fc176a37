package bootstreams

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// transport returns a transport that trusts the stream's CA.
func (l *Loader) transport(u *v1alpha1.StreamURL) (*http.Transport, error) {
	t := l.Servers.Transport()
	if u.CABundle != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(u.CABundle)) {
			return nil, errors.New("caBundle holds no certificate")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

func (l *Loader) fetchURL(ctx context.Context, u *v1alpha1.StreamURL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	transport, err := l.transport(u)
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL, nil)
	if err != nil {
		return nil, err
	}
	c := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > 5 {
			return errors.New("the server redirects to a URL without https, or more than five times")
		}
		return nil
	}}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	if err != nil {
		return nil, err
	}
	return data, checkData(data, u.SHA256)
}

func checkData(data []byte, want string) error {
	if len(data) > maxSize {
		return fmt.Errorf("it has more than %d bytes", maxSize)
	}
	if sum := sha256.Sum256(data); want != "" && hex.EncodeToString(sum[:]) != want {
		return fmt.Errorf("its SHA-256 is %x, not %s", sum, want)
	}
	return nil
}
