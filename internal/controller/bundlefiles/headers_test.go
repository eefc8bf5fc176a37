package bundlefiles

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func raw(t *testing.T, version string) ([]byte, string) {
	t.Helper()
	content := []byte("image " + version)
	sum := sha256.Sum256(content)
	d := bundle.DigestOf(content)
	m := &bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: "0.0.1", Name: "b", Version: version, Platforms: []string{"linux/amd64"}, ChunkSize: bundle.DefaultChunkSize,
		Images: []bundle.Image{{Name: "example.test/app:v1", Digest: d, MediaType: "application/vnd.oci.image.manifest.v1+json", Group: bundle.GroupWorkload, Size: int64(len(content)), Blobs: []int{0}}},
		Blobs:  []bundle.Blob{{Digest: d, Size: int64(len(content))}}}
	out, err := bundle.Marshal(m, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	h, err := bundle.ParseHeader(out)
	if err != nil {
		t.Fatal(err)
	}
	return out, h.Digest
}

// shelf serves its header under any digest: a bad peer.
type shelf []byte

func (s shelf) Header(string) ([]byte, error) {
	if s == nil {
		return nil, peerapi.ErrNotHere
	}
	return s, nil
}
func (shelf) Have(string) ([]byte, error)               { return nil, peerapi.ErrNotHere }
func (shelf) Chunk(string, int, []byte) ([]byte, error) { return nil, peerapi.ErrNotHere }

func newID(t *testing.T) *peerapi.Identity {
	t.Helper()
	key, _, err := peerapi.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := peerapi.NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func agent(t *testing.T, node string, s shelf) peerapi.Peer {
	t.Helper()
	id := newID(t)
	srv := httptest.NewUnstartedServer(peerapi.Handler(s, peerapi.Alive{Node: node}))
	srv.TLS = id.ServerTLS(func(string) bool { return true })
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return peerapi.Peer{Name: node, Address: srv.Listener.Addr().String(), PublicKey: id.PublicKey()}
}

// What Get gives was asked for by its digest and came from the holder of the
// key; a bad peer is skipped, and named if no other agent has the header.
func TestGet(t *testing.T) {
	here := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, here) })
	good, digest := raw(t, "1.0.0")
	other, _ := raw(t, "2.0.0")
	torn := append([]byte(nil), good...)
	torn[len(torn)-600] ^= 1
	stranger := agent(t, "n9", good)
	stranger.PublicKey = newID(t).PublicKey()
	cases := map[string]struct {
		sources []peerapi.Peer
		want    string // part of the error, empty if the header comes
	}{
		"an agent that has it":                  {[]peerapi.Peer{agent(t, "n1", good)}, ""},
		"the second one has it":                 {[]peerapi.Peer{agent(t, "n1", nil), agent(t, "n2", good)}, ""},
		"a bad peer is skipped":                 {[]peerapi.Peer{agent(t, "n1", other), agent(t, "n2", good)}, ""},
		"another bundle under that digest":      {[]peerapi.Peer{agent(t, "n1", other)}, ", expected sha256:"},
		"one flipped bit":                       {[]peerapi.Peer{agent(t, "n1", torn)}, "header of " + digest + " from node n1"},
		"a stranger at the address of an agent": {[]peerapi.Peer{stranger}, "is not that of a peer"},
		"nobody":                                {nil, ErrNoSource.Error()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := NewHeaders(newID(t))
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Add(1)
			go func() { defer wg.Done(); _ = c.Start(ctx) }()
			defer wg.Wait()
			defer cancel()
			for !c.started() {
			}
			h, err := c.Get(digest, func() []peerapi.Peer { return tc.sources })
			if errors.Is(err, ErrPending) {
				<-c.Changed()
				h, err = c.Get(digest, func() []peerapi.Peer { return tc.sources })
			}
			if tc.want == "" && (err != nil || h.Digest != digest || h.Raw != nil) {
				t.Fatalf("%v %+v", err, h)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("want %q, got %v", tc.want, err)
			}
			c.Retain(nil)
			if tc.want == "" {
				if _, err := c.Get(digest, func() []peerapi.Peer { return nil }); !errors.Is(err, ErrNoSource) {
					t.Errorf("what is not kept is forgotten: %v", err)
				}
			}
		})
	}
}

func (c *Headers) started() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx != nil
}
