package registry

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// cloudWith is a registry that redirects to its storage, with one blob.
func cloudWith(t *testing.T, tokens bool, content []byte) (*registrytest.Cloud, Place, *Poller) {
	t.Helper()
	c := registrytest.StartCloud(t, tokens)
	keys, err := ParseKeys(c.Keys())
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewWriter(keys, nil).Push(t.Context(), Upload{Repository: c.Addr + "/site/app", Blobs: []Blob{{MediaType: "application/octet-stream", Digest: digest.FromBytes(content).String(), Data: content}}})
	if err != nil {
		t.Fatal(err)
	}
	over := outbound.New(outbound.RegistryFlag, c.Addr, c.Storage).Transport()
	t.Cleanup(over.CloseIdleConnections)
	return c, Place{Repository: c.Addr + "/site/app", Keys: keys, Insecure: true}, NewPoller(over, time.Now)
}

// Ranges of blobs come from the storage of a registry, which gets no login.
func TestTheStorageOfARegistryGetsNoLogin(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789"), 1000)
	d := digest.FromBytes(content).String()
	for name, tokens := range map[string]bool{"with a password": false, "with a token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, at, p := cloudWith(t, tokens, content)
			for _, part := range []Part{{d, 0, 100}, {d, 4321, 1000}, {d, 0, int64(len(content))}} {
				body, err := p.OpenPart(t.Context(), at, part)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(body)
				body.Close()
				if err != nil || !bytes.Equal(got, content[part.Offset:part.Offset+part.Length]) {
					t.Errorf("%+v: %d bytes, %v", part, len(got), err)
				}
			}
			if n, _ := c.Blobs(); n != 3 || len(c.Leaks()) > 0 {
				t.Errorf("the storage served %d requests; with a login: %q", n, c.Leaks())
			}
		})
	}
}

// A storage that asks for a login, says no, or is gone gets none, and is named without its signed URL.
func TestAStorageThatAsksForALogin(t *testing.T) {
	t.Parallel()
	content := []byte("content")
	part := Part{Digest: digest.FromBytes(content).String(), Length: int64(len(content))}
	status := func(n int) http.HandlerFunc { return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) } }
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   Kind
		says   string
	}{
		"for a token": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x",scope="repository:other/app:push"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, Unreachable, "to which it redirects, answers with status 401"},
		"for a password": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, Unreachable, "to which it redirects, answers with status 401"},
		"with a URL that has expired": {status(http.StatusForbidden), Unreachable, "to which it redirects, answers with status 403"},
		"without the blob":            {status(http.StatusNotFound), BlobMissing, "it has no blob"},
		"that limits requests":        {status(http.StatusTooManyRequests), RateLimited, "429"},
		"and to another server": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.3:9/x?X-Signature="+registrytest.Signature)
			w.WriteHeader(http.StatusFound)
		}, InvalidAnswer, "127.0.0.3:9"},
	} {
		for _, tokens := range []bool{false, true} {
			cloud, at, p := cloudWith(t, tokens, content)
			cloud.Answer = c.answer
			_, err := p.OpenPart(t.Context(), at, part)
			var f *Failure
			if !errors.As(err, &f) || f.Kind != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %s", name, err, c.kind)
				continue
			}
			for _, secret := range []string{registrytest.Signature, registrytest.Password} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the error has %s: %v", name, secret, err)
				}
			}
			if n, granted := cloud.Blobs(); n != 1 || len(cloud.Leaks()) > 0 || slices.Contains(granted, "repository:other/app:push") {
				t.Errorf("%s: %d requests, tokens for %q, with a login: %q", name, n, granted, cloud.Leaks())
			}
		}
	}
}
