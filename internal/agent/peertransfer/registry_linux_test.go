package peertransfer

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// inRegistry is a bundle of some hundred chunks in a registry.
type inRegistry struct {
	server *registrytest.Server
	header *bundle.Header
	path   string
	keys   *registry.Keys
}

func logins(t *testing.T, host string) *registry.Keys {
	t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte(registrytest.User + ":" + registrytest.Password))
	k, err := registry.ParseKeys(fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, host, auth))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pushed(t *testing.T, s *registrytest.Server, keys *registry.Keys) *inRegistry {
	t.Helper()
	r := newBundle(t, keys)
	r.server = s
	r.push(t, s.Addr)
	return r
}

// newBundle is on disk, and in no registry yet.
func newBundle(t *testing.T, keys *registry.Keys) *inRegistry {
	t.Helper()
	spec := bundletest.Tiny()
	for i := range 3 {
		spec.Payloads = append(spec.Payloads, bundletest.Payload{Name: fmt.Sprint("file.", i), Content: bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, 5000)})
	}
	path := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, bundletest.Bytes(t, spec, bundletest.Key(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return &inRegistry{path: path, keys: keys}
}

func (r *inRegistry) push(t *testing.T, address string) {
	t.Helper()
	f, err := bundlereader.OpenPath(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	u, images, err := bundlereader.Upload(f, address+"/site/bundles", "v1")
	if err != nil {
		t.Fatal(err)
	}
	if images != len(f.Header().Metadata.Images) {
		t.Errorf("%d images can be pulled", images)
	}
	if _, err := registry.NewWriter(r.keys, nil).Push(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	r.header = f.Header()
}

// source is the bundle at addresses, the last one being its reference.
func (r *inRegistry) source(t *testing.T, keys *registry.Keys, addresses ...string) *Registry {
	t.Helper()
	return r.sourceOver(t, outbound.New(outbound.AgentRegistry, "127.0.0.1").Transport(), keys, addresses...)
}

func (r *inRegistry) sourceOver(t *testing.T, over *http.Transport, keys *registry.Keys, addresses ...string) *Registry {
	t.Helper()
	t.Cleanup(over.CloseIdleConnections)
	conf := RegistryConfig{Bundle: r.header.Digest, Name: "v1", Logins: func() (*registry.Keys, error) { return keys, nil },
		Transport: over, Retry: 20 * time.Millisecond}
	for _, a := range addresses {
		conf.Places = append(conf.Places, registry.Place{Repository: a + "/site/bundles"})
	}
	s := NewRegistry(conf)
	t.Cleanup(s.Close)
	return s
}

// shelf is an empty one on disk for the bundle.
func (r *inRegistry) shelf(t *testing.T) *bundlestore.Shelf {
	t.Helper()
	s, err := bundlestore.OpenLibrary(t.TempDir(), slog.New(slog.DiscardHandler), statefile.Ignore).Add(r.header)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fetch fetches all chunks from a registry, until the time is over, and returns how many were
// stored.
func fetchFromRegistry(t *testing.T, s *Registry, shelf *bundlestore.Shelf, most time.Duration) (stored int64, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	var count atomic.Int64
	s.Use(shelf.Bundle(), shelf.Has, nil)
	err = Fetch(ctx, shelf, chunks(shelf), []Peer{s}, Settings{Poll: 20 * time.Millisecond, Backoff: 5 * time.Millisecond, OnChunk: func(peerapi.Peer, int, int64) { count.Add(1) }})
	return count.Load(), err
}

// faulty is a network between a node and a registry.
func faulty(t *testing.T, to string, handle func(w http.ResponseWriter, r *http.Request, next http.Handler)) (address string) {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func isBlob(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }

// Everything comes, with one request for each blob and not for each chunk.
func TestABundleComesFromARegistry(t *testing.T) {
	t.Parallel()
	r := pushed(t, registrytest.Start(t), nil)
	r.server.Requests()
	s := r.source(t, nil, r.server.Addr)
	raw, err := s.Header(t.Context(), r.header.Digest)
	if err != nil || !bytes.Equal(raw, r.header.Raw) {
		t.Fatalf("%d bytes of the header: %v", len(raw), err)
	}
	shelf := r.shelf(t)
	stored, err := fetchFromRegistry(t, s, shelf, time.Minute)
	if err != nil || stored != int64(shelf.Chunks()) || s.Fault() != nil {
		t.Fatalf("%d of %d chunks, fault %+v: %v", stored, shelf.Chunks(), s.Fault(), err)
	}
	requests := r.server.Requests()
	if blobs := len(r.header.Metadata.Blobs); len(requests) > 3*blobs+3 || shelf.Chunks() < 10*blobs {
		t.Errorf("%d requests for %d chunks of %d blobs: %v", len(requests), shelf.Chunks(), blobs, requests)
	}
	if _, err := s.Header(t.Context(), otherBundle(1)); kindOf(err) != registry.InvalidAnswer || !strings.Contains(err.Error(), "is not bundle") {
		t.Errorf("a tag of another bundle: %v", err)
	}
}

func otherBundle(n int) string { return fmt.Sprintf("sha256:%064d", n) }

// A registry that asks for a login is not asked again and again, and a login counts when it is
// there.
func TestARegistryWithALogin(t *testing.T) {
	t.Parallel()
	server := registrytest.StartWithLogin(t)
	r := pushed(t, server, logins(t, server.Addr))
	s := r.source(t, nil, server.Addr)
	for range 3 {
		if _, err := s.Header(t.Context(), r.header.Digest); kindOf(err) != registry.Unauthorized {
			t.Fatal(err)
		}
	}
	if f := s.Fault(); f == nil || f.Kind != registry.Unauthorized || !strings.Contains(f.Message, server.Addr) {
		t.Errorf("%+v", f)
	}
	s = r.source(t, logins(t, server.Addr), server.Addr)
	if _, err := s.Header(t.Context(), r.header.Digest); err != nil {
		t.Fatal(err)
	}
	shelf := r.shelf(t)
	if stored, err := fetchFromRegistry(t, s, shelf, time.Minute); err != nil || stored != int64(shelf.Chunks()) {
		t.Errorf("%d of %d chunks: %v", stored, shelf.Chunks(), err)
	}
	s = r.source(t, logins(t, "other.example"), server.Addr)
	if _, err := s.Header(t.Context(), r.header.Digest); kindOf(err) != registry.Unauthorized || strings.Contains(err.Error(), registrytest.Password) {
		t.Errorf("the login of another registry: %v", err)
	}
}

// answerHead answers as next does but for the body, which it returns.
func answerHead(w http.ResponseWriter, req *http.Request, next http.Handler) []byte {
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, req)
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.Code)
	return answer.Body.Bytes()
}

// A connection that ends in the middle costs the chunk that was under way.
func TestACutConnectionCostsOneChunk(t *testing.T) {
	t.Parallel()
	r := pushed(t, registrytest.Start(t), nil)
	const good = 5 * bundle.MinChunkSize / 2 // two chunks and a half
	var cuts, sent atomic.Int64
	at := faulty(t, r.server.Addr, func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if !isBlob(req) {
			next.ServeHTTP(w, req)
			return
		}
		body := answerHead(w, req, next)
		n, _ := w.Write(body[:min(len(body), good)])
		sent.Add(int64(n))
		if n < len(body) {
			cuts.Add(1)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	s, shelf := r.source(t, nil, at), r.shelf(t)
	stored, err := fetchFromRegistry(t, s, shelf, 2*time.Minute)
	if err != nil || stored != int64(shelf.Chunks()) || cuts.Load() == 0 {
		t.Fatalf("%d of %d chunks after %d cuts: %v", stored, shelf.Chunks(), cuts.Load(), err)
	}
	var all int64
	for n := range shelf.Chunks() {
		all += shelf.ChunkSize(n)
	}
	if lost := sent.Load() - all; lost > cuts.Load()*bundle.MinChunkSize {
		t.Errorf("%d bytes came in vain in %d cuts", lost, cuts.Load())
	}
}

// A blob that was deleted in the registry does not keep the others, and comes after a push.
func TestADeletedBlobIsNamed(t *testing.T) {
	t.Parallel()
	r := pushed(t, registrytest.Start(t), nil)
	gone := r.header.Metadata.Blobs[len(r.header.Metadata.Blobs)-1]
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+r.server.Ref("v2/site/bundles/blobs/"+gone.Digest), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	s, shelf := r.source(t, nil, r.server.Addr), r.shelf(t)
	stored, err := fetchFromRegistry(t, s, shelf, 5*time.Second)
	first, count := r.header.Chunks.OfBlob(len(r.header.Metadata.Blobs) - 1)
	if !errors.Is(err, context.DeadlineExceeded) || stored != int64(shelf.Chunks()-count) || shelf.Has(first) {
		t.Fatalf("%d of %d chunks, %d are gone: %v", stored, shelf.Chunks(), count, err)
	}
	if f := s.Fault(); f == nil || f.Kind != registry.BlobMissing || !strings.Contains(f.Message, gone.Digest) {
		t.Errorf("%+v", f)
	}
	r.push(t, r.server.Addr)
	if stored, err = fetchFromRegistry(t, s, shelf, time.Minute); err != nil || stored != int64(count) || s.Fault() != nil {
		t.Errorf("after the push %d of %d chunks, fault %+v: %v", stored, count, s.Fault(), err)
	}
}

// Altered bytes are refused and named, and the next place is asked.
func TestAlteredBytesComeFromAnotherPlace(t *testing.T) {
	t.Parallel()
	r := pushed(t, registrytest.Start(t), nil)
	at := faulty(t, r.server.Addr, func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if !isBlob(req) {
			next.ServeHTTP(w, req)
			return
		}
		body := answerHead(w, req, next)
		if len(body) > 0 {
			body[len(body)/2] ^= 1
		}
		_, _ = w.Write(body)
	})
	alone, shelf := r.source(t, nil, at), r.shelf(t)
	if _, err := fetchFromRegistry(t, alone, shelf, 2*time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if f := alone.Fault(); f == nil || f.Kind != registry.InvalidAnswer || !strings.Contains(f.Message, "has wrong bytes at offset") || !strings.Contains(f.Message, at) {
		t.Errorf("%+v", f)
	}
	if _, err := alone.Header(t.Context(), r.header.Digest); kindOf(err) != registry.InvalidAnswer {
		t.Errorf("an altered header: %v", err)
	}
	both := r.source(t, nil, at, r.server.Addr)
	if raw, err := both.Header(t.Context(), r.header.Digest); err != nil || !bytes.Equal(raw, r.header.Raw) {
		t.Errorf("the header of the second place: %v", err)
	}
	if _, err := fetchFromRegistry(t, both, shelf, time.Minute); err != nil || both.Fault() != nil {
		t.Errorf("with another place: %+v: %v", both.Fault(), err)
	}
}

// A registry that asks to wait is not asked meanwhile.
func TestARegistryThatLimitsRequests(t *testing.T) {
	t.Parallel()
	r := pushed(t, registrytest.Start(t), nil)
	var refused, asked atomic.Int64
	at := faulty(t, r.server.Addr, func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if isBlob(req) && asked.Add(1) > 1 {
			refused.Add(1)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, req)
	})
	s, shelf := r.source(t, nil, at), r.shelf(t)
	if _, err := fetchFromRegistry(t, s, shelf, 2*time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	// Two streams may ask at the same moment.
	if f := s.Fault(); f == nil || f.Kind != registry.RateLimited || !strings.Contains(f.Message, "next try at") || refused.Load() > 2 {
		t.Errorf("%+v, refused %d times", f, refused.Load())
	}
}

// A cloud redirects to its storage: chunks come from there, with ranges, and it gets no login. As long as
// the storage refuses, the bundle is not there; no message has a signed URL.
func TestARegistryThatRedirects(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]bool{"with a password": false, "with a token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := registrytest.StartCloud(t, tokens)
			keys, err := registry.ParseKeys(cloud.Keys())
			if err != nil {
				t.Fatal(err)
			}
			r := newBundle(t, keys)
			r.push(t, cloud.Addr)
			s := r.sourceOver(t, outbound.New(outbound.AgentRegistry, "127.0.0.1", "127.0.0.2").Transport(), keys, cloud.Addr)
			raw, err := s.Header(t.Context(), r.header.Digest)
			if err != nil || !bytes.Equal(raw, r.header.Raw) {
				t.Fatalf("%d bytes of the header: %v", len(raw), err)
			}
			shelf := r.shelf(t)
			if stored, err := fetchFromRegistry(t, s, shelf, time.Minute); err != nil || stored != int64(shelf.Chunks()) {
				t.Fatalf("%d of %d chunks: %v", stored, shelf.Chunks(), err)
			}
			if n, _ := cloud.Blobs(); n == 0 || len(cloud.Leaks()) > 0 {
				t.Errorf("the storage served %d requests; with a login: %q", n, cloud.Leaks())
			}
			cloud.Answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
			s = r.sourceOver(t, outbound.New(outbound.AgentRegistry, "127.0.0.1", "127.0.0.2").Transport(), keys, cloud.Addr)
			_, err = s.Header(t.Context(), r.header.Digest)
			if kindOf(err) != registry.Unreachable || !strings.Contains(err.Error(), cloud.Storage+", to which it redirects") || strings.Contains(err.Error(), registrytest.Signature) {
				t.Errorf("a storage that refuses: %v", err)
			}
			s = r.source(t, keys, cloud.Addr) // 127.0.0.2 is not allowed
			if _, err = s.Header(t.Context(), r.header.Digest); !errors.Is(err, outbound.ErrLocal) || !strings.Contains(err.Error(), cloud.Storage) {
				t.Errorf("a redirect into this machine: %v", err)
			}
		})
	}
}

// A local address is refused, and the message has the setting that allows it.
func TestALocalRegistryMustBeAllowed(t *testing.T) {
	t.Parallel()
	s := NewRegistry(RegistryConfig{Bundle: otherBundle(1), Name: "v1", Places: []registry.Place{{Repository: "127.0.0.1:9/site/bundles"}}, Transport: outbound.New(outbound.AgentRegistry).Transport()})
	_, err := s.Header(t.Context(), otherBundle(1))
	if f := s.Fault(); !errors.Is(err, outbound.ErrLocal) || f == nil || f.Kind != registry.Unreachable || !strings.Contains(f.Message, "localRegistries") {
		t.Errorf("%+v: %v", f, err)
	}
}

// The node that fetches sends its peers what it does not want itself, and does not store it.
// What it wants comes once, into its store.
func TestANodeRelaysWhatItDoesNotWant(t *testing.T) {
	t.Parallel()
	r := pushed(t, registrytest.Start(t), nil)
	s := r.source(t, nil, r.server.Addr)
	lib := bundlestore.OpenLibrary(t.TempDir(), slog.New(slog.DiscardHandler), statefile.Ignore)
	shelf, err := lib.Add(r.header)
	if err != nil {
		t.Fatal(err)
	}
	lib.Serve([]string{shelf.Digest()})
	shelves := Shelves{Library: lib, Relay: func(string) *Registry { return s }}
	own := transfer.NewBitmap(shelf.Chunks())
	own.Set(0)
	for _, step := range []struct {
		own  transfer.Bitmap
		want int // chunks that are offered
	}{{nil, 0}, {own, shelf.Chunks() - 1}} {
		s.Use(r.header, shelf.Has, step.own)
		have, err := shelves.Have(shelf.Digest())
		got := 0
		for n := range shelf.Chunks() {
			if transfer.Bitmap(have).Has(n) {
				got++
			}
		}
		if err != nil || got != step.want {
			t.Errorf("%d chunks are offered, want %d: %v", got, step.want, err)
		}
	}
	if _, err := shelves.Chunk(shelf.Digest(), 0, nil); !errors.Is(err, peerapi.ErrNotHere) {
		t.Errorf("a chunk that the node wants: %v", err)
	}
	n := shelf.Chunks() - 1
	b, err := shelves.Chunk(shelf.Digest(), n, nil)
	if err != nil || int64(len(b)) != shelf.ChunkSize(n) || shelf.Has(n) {
		t.Errorf("%d bytes of chunk %d, stored %v: %v", len(b), n, shelf.Has(n), err)
	}
	r.server.Stop()
	if _, err := shelves.Chunk(shelf.Digest(), n-1, nil); !errors.Is(err, peerapi.ErrNotHere) {
		t.Errorf("without the registry: %v", err)
	}
	if have, err := shelves.Have(shelf.Digest()); err != nil || transfer.Bitmap(have).Has(n) {
		t.Errorf("it still offers what it cannot read: %v", err)
	}
}
